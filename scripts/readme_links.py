"""Hatchling's hook for the README on an index page, where a relative link leads nowhere.

Links become absolute once `[project.urls]` has a `Source`: to the files of this release's tag.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: In Markdown, where a link's text may have brackets of its own, and in HTML.
LINK = re.compile(r'(\]\(|(?:src|srcset)=")(?![a-z]+:|#)([^)"\s]+)')
PICTURES = (".svg", ".png")


def absolute(text: str, source: str, version: str) -> str:
    """The README with links to files at ``source``, in the state of ``version``."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[2].endswith(PICTURES) else "blob"
        return f"{found[1]}{source.rstrip('/')}/{kind}/v{version}/{found[2]}"

    return LINK.sub(link, text)


class ReadmeLinks(MetadataHookInterface):  # type: ignore[misc] # only a build has it
    """Sets `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """See hatchling."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if source := metadata.get("urls", {}).get("Source"):
            text = absolute(text, source, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
