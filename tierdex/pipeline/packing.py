"""Packs the packages that executors need into one archive, for a cluster without tierdex.

numba and pyarrow are compiled code, which ``--py-files`` cannot carry; an archive that Spark
unpacks beside each executor can::

    tierdex spark pack env.tar
    make_session("spark://...", archive="env.tar", executor_python="python3.11")

Executors need the same minor version of Python and the same kind of machine. The files keep their
times, so that the executors do not compile the kernels again.

Depends on errors; reads the metadata of the installed packages.
"""

from __future__ import annotations

import re
import tarfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tierdex.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXTRAS: Final = ("s3",)
_ALSO: Final = ("pandas",)  # Spark asks for it where Arrow batches go through Python
_MODES: Final = {".tar": "w", ".gz": "w:gz", ".tgz": "w:gz"}
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_CACHED: Final = frozenset({".pyc", ".nbi", ".nbc"})  # finished files of __pycache__
_COMMAND_LINE: Final = frozenset({"rich", "typer"})  # no task imports them
_NOT_NEEDED: Final = re.compile(
    r"(^|/)(tests|include)/|\.(h|hpp|pxd|pyx|a)$"
    r"|^botocore/data/(?!s3/|sso|sts/|signin/)[^/]+/"  # descriptions of services, hundreds of them
)


def pack_environment(target: Path) -> int:
    """Write the archive (.tar, .tar.gz or .tgz); return its bytes.

    Raises InvalidRequestError for another ending, NotFoundError when a package is not installed.
    """
    mode = _MODES.get(target.suffix)
    if mode is None:
        raise InvalidRequestError("must end in .tar, .tar.gz or .tgz", field="target")
    unfinished = target.with_name(f"{target.name}.new")
    with tarfile.open(unfinished, mode) as archive:  # type: ignore[call-overload]
        for path, name in _files():
            archive.add(path, name, recursive=False)
    unfinished.rename(target)
    return target.stat().st_size


def _files() -> Iterator[tuple[Path, str]]:
    """Yield (path of a file, its name in the archive), each once."""
    seen: set[str] = set()
    home = Path(__file__).parent.parent  # the package itself
    for path in sorted(home.rglob("*")):
        if path.parent.name == "__pycache__" and path.suffix not in _CACHED:
            continue  # a compiling process writes and renames it at any time
        if path.is_file():
            name = f"tierdex/{path.relative_to(home).as_posix()}"
            seen.add(name)
            yield path, name
    for distribution in _distributions():
        for file in distribution.files or ():
            name = file.as_posix()
            if name.startswith("..") or name in seen or _NOT_NEEDED.search(name):
                continue
            path = Path(str(distribution.locate_file(file)))
            if path.is_file():
                seen.add(name)
                yield path, name


def _distributions() -> list[metadata.Distribution]:
    """Return the packages that a task needs, with their dependencies."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [*_requirements("tierdex", _EXTRAS), *_ALSO]
    while waiting:
        name = waiting.pop()
        if name in found or name in _COMMAND_LINE:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise NotFoundError(
                f"{name} is not installed: pip install 'tierdex[spark,s3]'"
            ) from error
        waiting += _requirements(name, ())
    return list(found.values())


def _requirements(name: str, extras: tuple[str, ...]) -> list[str]:
    """Return the installed requirements of `name`, with those of `extras`."""
    wanted = []
    for text in metadata.requires(name) or ():
        requirement, _, condition = text.partition(";")
        matched = _REQUIREMENT.match(requirement.strip())
        assert matched is not None, text
        if "extra ==" in condition and not any(
            f"'{one}'" in condition.replace('"', "'") for one in extras
        ):
            continue
        normal = re.sub(r"[-_.]+", "-", matched[0]).lower()
        # A requirement that a marker excludes is not installed here.
        if condition and not _is_installed(normal):
            continue
        wanted.append(normal)
    return wanted


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
