"""The site: the pages of the repository and what they link to, staged and built by Zensical (`make site`).

The pages keep their places, so every link is that of the repository. The build fails at a link without a
target.

Depends on the zensical command of the group `site`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAGED = ROOT / "build" / "site"
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def pages(root: Path) -> list[Path]:
    """Return the pages of the site."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def linked_files(page: Path, root: Path) -> set[Path]:
    """Return the files of the repository that a page links to or shows."""
    targets = {
        (page.parent / link).resolve()
        for link in _LINK.findall(page.read_text())
        if ":" not in link
    }
    return {target for target in targets if target.is_file() and target.is_relative_to(root)}


def stage(root: Path, folder: Path) -> None:
    """Copy the pages and what they link to into `folder`, each at its own path."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages(root):
        for file in {page, *linked_files(page, root)}:
            target = folder / file.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)


if __name__ == "__main__":
    stage(ROOT, STAGED / "pages")
    shutil.copy(ROOT / "zensical.toml", STAGED)
    zensical = Path(sys.executable).with_name("zensical")
    # In a folder of its own: it keeps a cache in `.cache` of the one it works in, and empties that.
    sys.exit(subprocess.run([zensical, "build", "--clean", "--strict"], cwd=STAGED).returncode)
