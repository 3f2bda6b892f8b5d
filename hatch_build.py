"""The wheel carries the console's libraries: they are fetched when it is built, as ``make setup`` does for a checkout. Its metadata
name the repository that a release is built from."""

import os
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class Console(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # A checkout is set up by make, and serves them from where they are fetched to.
        root = Path(self.root)
        runpy.run_path(str(root / "console" / "fetch.py"))["fetch"]()
        build_data["force_include"][str(root / ".build" / "console" / "vendor")] = "moorage/console/vendor"


class Repository(MetadataHookInterface):
    """A package index shows the README outside of the repository, so its links have to be whole there."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text()
        address = repository(os.environ)
        if address is not None:
            home, version = address
            readme = with_whole_links(readme, home, version)
            metadata["urls"] = {
                "Homepage": home,
                "Documentation": f"{home}/blob/{version}/docs/index.md",
                "Changelog": f"{home}/blob/{version}/CHANGELOG.md",
                "Issues": f"{home}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def repository(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The repository's address and the tag that is built, as GitHub's workflows name them; None elsewhere."""
    if not (name := environ.get("GITHUB_REPOSITORY")):
        return None
    return f"{environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}", environ.get("GITHUB_REF_NAME", "main")


def with_whole_links(markdown: str, home: str, version: str) -> str:
    """The Markdown with each relative link and picture at its place in the repository."""

    def whole(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if "://" in target or target.startswith("#"):
            return found[0]
        return f"{mark}[{words}]({home}/{'raw' if mark else 'blob'}/{version}/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", whole, markdown)
