"""How Sphinx makes the site of the documentation; `make docs` runs it.

The site's pages are those that are read in the repository, and its source directory is the whole
repository: so their links, to the README, examples and container stacks too, work in both.
"""

from __future__ import annotations

import importlib.metadata
from typing import Final

from docutils.nodes import Element, TextElement
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.nodes import make_refnode

from tests.unit.test_api import FOR_APPLICATIONS, FOR_BACKENDS

project = "coordlock"
release = version = importlib.metadata.version("coordlock")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
include_patterns = [
    "*.md",
    "compose/README.md",
    "docs/**",
    "examples/shop/README.md",
    "models/README.md",
    "packages/*/README.md",
]
root_doc = "docs/index"

myst_heading_anchors = 4

html_theme = "furo"
html_title = f"coordlock {release}"
html_copy_source = False
html_show_copyright = False

# A name in single backquotes is code, and a link where the reference has it.
default_role = "py:obj"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseException, Enum, Generic, OSError, int, object, tuple",
    "show-inheritance": True,
}

#: The sidebar: below which page, under which title, stand which pages. Patterns stand for the rest.
NAVIGATION: Final = {
    "docs/index": {
        "Start": ["/README", "tutorial", "before-production", "troubleshooting", "comparison"],
        "How-to guides": ["how-to/*", "fencing", "fencing/*"],
        "Integrations": ["integrations/*", "/examples/shop/README"],
        "Concepts": [
            "concepts",
            "reliability",
            "performance",
            "architecture",
        ],
        "Reference": ["reference/*", "command-line", "backends/*"],
        "Project": [
            "design/README",
            "/C*",
            "/RELEASING",
            "/SECURITY",
            "/compose/README",
            "/models/README",
            "/packages/*/README",
        ],
    },
    "docs/design/README": {"Design notes": ["*"]},
}

#: Options of autodoc, by module. Without them the site would describe what frameworks define, and
#: describe twice what two modules have, which fails the build.
AUTODOC_OPTIONS: Final = {
    "coordlock": ("imported-members:",),
    "coordlock.backend": ("imported-members:", "exclude-members: ServiceInfo, VersionedValue"),
    "coordlock.fencing": ("imported-members:",),
    "coordlock.integrations.apscheduler": ("no-inherited-members:",),
    "coordlock.integrations.celery": ("no-inherited-members:", "exclude-members: LockedTask"),
    "coordlock.integrations.django": ("no-inherited-members:", "imported-members:"),
    "coordlock.model.contender": ("exclude-members: Contender",),
    "coordlock.settings": ("imported-members:", "exclude-members: Settings, DEFAULT"),
    "coordlock_memory": ("imported-members:",),
    "coordlock.types": ("imported-members:", "exclude-members: AsyncTransaction, Transaction"),
}


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the sidebar to pages that, in the repository, lead on with sentences."""
    for title, pages in NAVIGATION.get(page, {}).items():
        listed = "\n".join(pages)
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {title}\n\n{listed}\n```\n"


def add_docstrings(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add every public module's docstrings below the overview of the API."""
    if page == "docs/reference/api":
        for name in (*FOR_APPLICATIONS, *FOR_BACKENDS, "coordlock_memory"):
            options = "".join(f"\n   :{option}" for option in AUTODOC_OPTIONS.get(name, ()))
            module = f"```{{eval-rst}}\n.. automodule:: {name}{options}\n```"
            source[0] += f"\n## The module {name}\n\n{module}\n"


def link_to_public_name(
    app: Sphinx, environment: BuildEnvironment, reference: pending_xref, shown: TextElement
) -> Element | None:
    """Resolve `coordlock.locks.lock.Lock` as `coordlock.Lock`, which the reference documents."""
    if reference.get("refdomain") != "py":
        return None
    name = reference["reftarget"].rpartition(".")[2]
    known = environment.domains.python_domain.objects
    for module in ("coordlock", "coordlock.fencing"):
        if found := known.get(f"{module}.{name}"):
            return make_refnode(
                app.builder, reference["refdoc"], found.docname, found.node_id, shown
            )
    return None


def read_sections(
    _app: Sphinx, what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Read `Args:` and the like, as Google writes them, where they can be.

    As an extension, `sphinx.ext.napoleon` takes what precedes a colon in the docstring of a
    property or an attribute for its type.
    """
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, what=what).lines()


def hide_private_bases(
    _app: Sphinx, _name: str, _class: type, _options: object, bases: list[type]
) -> None:
    """Show no base that is not public; what is inherited from it is shown."""
    bases[:] = [base for base in bases if not base.__name__.startswith("_")] or [object]


def setup(app: Sphinx) -> None:
    """Connect the functions above to what Sphinx does."""
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("autodoc-process-bases", hide_private_bases)
    app.connect("source-read", add_navigation)
    app.connect("source-read", add_docstrings)
    app.connect("missing-reference", link_to_public_name)
