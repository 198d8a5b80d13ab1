"""`python -m tools.generate_docs [NAME ...]`: write the generated documents; without names, all.

Each document has a module of its own beside this one, `document_<name>.py`, with
`generate(root) -> dict of path to text`. Tests call the same function and compare.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PREFIX = "document_"


def names() -> list[str]:
    """Return the documents that can be generated."""
    return sorted(
        path.stem.removeprefix(_PREFIX) for path in Path(__file__).parent.glob(f"{_PREFIX}*.py")
    )


def generate(name: str) -> dict[Path, str]:
    """Return the texts of one document's files by their path."""
    texts: dict[Path, str] = import_module(f"tools.{_PREFIX}{name}").generate(ROOT)
    return texts


def main() -> None:
    """Write the documents that are named, or all of them."""
    asked = sys.argv[1:] or names()
    if unknown := set(asked) - set(names()):
        sys.exit(f"there is no document {min(unknown)}; there are: {', '.join(names())}")
    for name in asked:
        for path, text in generate(name).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
