"""`make wheel`: a wheel with compiled kernels for each Python at hand, and a pure one, in dist/.

::

    python -m build        tierdex-…-py3-none-any.whl       compiles kernels at their first call, needs numba
    tools.kernel_library   kernels.so for x86-64-v2, v3     once for each Python
    wheel unpack, pack     tierdex-…-cp3XX-…-manylinux.whl  the same with both, and the extra `compile`

A platform wheel for another architecture is made by running this there (.github/workflows/release.yml).
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from elftools.elf.elffile import ELFFile

from tierdex.fileparts.kernels.built import KINDS, lacking_for

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "wheel"
_UNCONDITIONAL = re.compile(r"^Requires-Dist: (numba\S*)$", re.MULTILINE)
_OLDEST = (2, 17)  # manylinux2014


def main() -> None:
    """Make one of the newest pure wheel in dist/ for each Python named as an argument (default: this one)."""
    pure = max(
        (ROOT / "dist").glob("tierdex-*-py3-none-any.whl"), key=lambda path: path.stat().st_mtime
    )
    for python in sys.argv[1:] or [sys.executable]:
        print(platform_wheel(pure, python, WORK, ROOT / "dist"))


def platform_wheel(pure: Path, python: str, work: Path, target: Path) -> Path:
    """Build the libraries with `python`, and return the path of the wheel that has them."""
    tag = _run(python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").strip()
    environment = work / tag / "venv"
    if not (environment / "done").exists():
        zig = [] if shutil.which("cc") else ["ziglang"]
        _run(python, "-m", "venv", "--clear", str(environment))
        pip = [str(environment / "bin" / "pip"), "-q", "--disable-pip-version-check"]
        _run(*pip, "install", f"{pure}[server,s3]", "numba>=0.61", *zig)
        (environment / "done").touch()
    kinds = [kind for kind in KINDS if not lacking_for(kind)]
    libraries = {kind: work / tag / kind / "kernels.so" for kind in kinds}
    builder = [str(environment / "bin" / "python"), "-m", "tools.kernel_library"]
    for kind, library in libraries.items():  # each by two processes
        _run(*builder, "--cpu", kind, "--folder", str(library.parent))
    return add_libraries(pure, libraries, tag, target)


def add_libraries(pure: Path, libraries: dict[str, Path], tag: str, target: Path) -> Path:
    """Return the path of a wheel in `target` that is `pure` with the libraries of each kind of CPU."""
    glibc = max(_glibc_of(library) for library in libraries.values())
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "wheel", "unpack", "-d", folder, str(pure))
        (tree,) = Path(folder).iterdir()
        place = tree / "tierdex" / "fileparts" / "kernels" / "built"
        place.mkdir()
        for kind, library in libraries.items():
            name = f"{kind}.cpython-{tag.removeprefix('cp')}.so"
            shutil.copyfile(library, place / name)
        (information,) = tree.glob("*.dist-info")
        metadata = (information / "METADATA").read_text()
        metadata, count = _UNCONDITIONAL.subn("", metadata)
        assert count == 1, metadata
        (information / "METADATA").write_text(metadata.replace("\n\nRequires", "\nRequires", 1))
        described = (information / "WHEEL").read_text()
        system = f"manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
        described = described.replace("Tag: py3-none-any", f"Tag: {tag}-{tag}-{system}")
        described = described.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
        (information / "WHEEL").write_text(described)
        told = _run(sys.executable, "-m", "wheel", "pack", "-d", str(target), str(tree))
    return target / told.split("./")[-1].split("...")[0].split("/")[-1]


def _glibc_of(library: Path) -> tuple[int, int]:
    """Return the glibc that a library needs, (2, 17) at least."""
    with library.open("rb") as file:
        wanted = ELFFile(file).get_section_by_name(".gnu.version_r")
        names = [each.name for _, versions in wanted.iter_versions() for each in versions]
    glibc = [name.removeprefix("GLIBC_").split(".") for name in names if name.startswith("GLIBC_2")]
    return max([_OLDEST, *((int(major), int(minor)) for major, minor, *_ in glibc)])


def _run(*command: str) -> str:
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{told.stdout[-2000:]}{told.stderr[-4000:]}")
    return told.stdout


if __name__ == "__main__":
    main()
