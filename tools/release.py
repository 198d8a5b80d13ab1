"""`make release`: everything that a release has, in dist/, tried; a tag's workflow uploads it.

::

    make dist        wheels (pure, and with compiled kernels for each of PYTHONS), sources, tierdex-client
    smoke            each extra of this Python's wheel is installed into an empty environment, and used
    SBOM             tierdex-VERSION.cdx.json: what that environment holds (CycloneDX)
    SHA256SUMS       of all of them

The version is that of pyproject.toml; tools/check_release.py compares every other place and the tag with it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tierdex import __version__

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# What shows that an extra came: in order, since each is added to the environment of the one before.
_USES = {
    "": (
        "import tempfile, tierdex\n"
        "with tierdex.Index.open(tempfile.mkdtemp()) as index:\n"
        "    index.put(topic='t', key='k', queue_id=0, offset=7, size=1, timestamp=1)\n"
        "    assert index.query('t', key='k').entries[0].offset == 7\n"
        "with tierdex.MessageLog.open(tempfile.mkdtemp()) as log:\n"
        "    log.append(topic='t', queue_id=0, body=b'b', key='k')\n"
        "    assert log.get('t', key='k').messages[0].body == b'b'"
    ),
    "server": "import tierdex.app.http.server",
    "s3": "from tierdex.storage_layer.open import open_store; open_store('s3://bucket?region=eu-west-1')",
    "gcs": "import tierdex.storage_layer.gcs",
    "azure": "import tierdex.storage_layer.azure",
    "jwt": "import joserfc",
    "otel": "import opentelemetry.trace",
    "kafka": "import confluent_kafka",
    "redis": "import redis",
    "nats": "import nats",
    "rabbitmq": "import rstream",
    "schemas": "import fastavro, google.protobuf",
    "mcp": "import tierdex.app.mcp.server",
    "traces": "import tierdex.app.traces.jaeger, tierdex.app.traces.otlp",
    "delta": "import tierdex.following.tables.delta_table",
    "iceberg": "import tierdex.following.tables.iceberg_table",
}


def main() -> None:
    """Try the wheel of this Python, and write the list of its parts and the checksums."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (wheel,) = DIST.glob(f"tierdex-{__version__}-{tag}-*.whl")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "venv"
        _run(sys.executable, "-m", "venv", str(environment))
        try_extras(environment / "bin" / "python", wheel)
        parts = DIST / f"tierdex-{__version__}.cdx.json"
        _run(
            sys.executable, "-m", "cyclonedx_py", "environment", str(environment / "bin" / "python"),
            "--pyproject", "pyproject.toml", "--output-reproducible", "--of", "JSON", "-o", str(parts),
        )  # fmt: skip
    (DIST / "SHA256SUMS").write_text(checksums(DIST))
    print(f"dist/ is ready: {len(list(DIST.iterdir()))} files, {len(_USES)} ways to install tried")


def try_extras(python: Path, wheel: Path) -> None:
    """Install one extra after the other, and use what each brought. Ends the program where one fails."""
    for extra, use in _USES.items():
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        _run(str(python), "-m", "pip", "-q", "--disable-pip-version-check", "install", wanted)
        _run(str(python), "-c", f"import sys; sys.modules['numba'] = None\n{use}")
        print(f"tierdex[{extra}]" if extra else "tierdex", flush=True)


def checksums(folder: Path) -> str:
    """Return the lines of `sha256sum` for each file of a release in a folder."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    digests = (hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return "".join(f"{digest}  {path.name}\n" for digest, path in zip(digests, files, strict=True))


def _run(*command: str) -> None:
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{told.stdout[-2000:]}{told.stderr[-4000:]}")


if __name__ == "__main__":
    main()
