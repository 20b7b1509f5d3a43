"""Links lead somewhere, and every page can be found."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.pages import PAGES, REPOSITORY, links, page, rows

INDEX: Final = "docs/index.md"
NOTES: Final = "docs/design/README.md"


def _local(name: str) -> list[tuple[str, str]]:
    """The links of a page that stay in the repository: path and fragment."""
    found = []
    for link in links(name):
        if "://" not in link and not link.startswith("mailto:"):
            path, _, fragment = link.partition("#")
            target = (REPOSITORY / name).parent / path if path else REPOSITORY / name
            found.append((str(target.resolve().relative_to(REPOSITORY)), fragment))
    return found


def _anchors(name: str) -> set[str]:
    """The fragments that lead to the headings of a page, as the common hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page(name), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_resolves(name: str) -> None:
    broken = [
        f"{path}#{fragment}"
        for path, fragment in _local(name)
        if not (REPOSITORY / path).exists()
        or (fragment and path.endswith(".md") and fragment not in _anchors(path))
    ]
    assert broken == []


def test_every_page_is_reachable_from_the_index() -> None:
    reached: set[str] = set()
    ahead = {INDEX}
    while ahead:
        reached |= ahead
        found = {path for name in ahead for path, _ in _local(name)}
        ahead = (found & set(PAGES)) - reached
    assert set(PAGES) - reached == {"README.md"} - reached


def test_the_readme_leads_to_the_index() -> None:
    assert INDEX in {path for path, _ in _local("README.md")}


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = [row[0].strip("* ").casefold() for row in rows("docs/concepts.md", "## The words")]
    assert words
    assert words == sorted(words)


def test_every_design_note_is_in_their_index_and_ends_in_what_was_rejected() -> None:
    notes = [name for name in PAGES if name.startswith("docs/design/") and name != NOTES]
    assert sorted(path for path, _ in _local(NOTES)) == notes
    for name in notes:
        assert len(page(name).split()) <= 1200, name
        assert (
            re.findall(r"^## (.*)$", page(name), re.MULTILINE)[-1] == "Considered and rejected"
        ), name


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_is_named_exists(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", page("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", page(name), re.MULTILINE))
    assert named <= targets
