"""What `make site` stages, and whether the versions agree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.check_release import faults
from tools.make_site import linked_files, pages, stage

ROOT = Path(__file__).parents[2]


def test_staged_pages_have_what_they_link_to(tmp_path):
    stage(ROOT, tmp_path / "pages")
    found = pages(tmp_path / "pages")
    assert len(found) == len(pages(ROOT))
    for page in pages(ROOT):
        links = {file.relative_to(ROOT) for file in linked_files(page, ROOT)}
        assert all((tmp_path / "pages" / link).is_file() for link in links)


def test_versions_agree():
    assert faults(ROOT, None) == []


@pytest.fixture
def versions(tmp_path):
    """A copy of the files that say the version."""
    for name in ("pyproject.toml", "packages/tierdex-client/pyproject.toml", "tierdex/ids.py"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0, not yet released\n")
    return tmp_path


def change(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_tag_is_refused_until_its_version_is_released(versions):
    assert faults(versions, None) == []
    assert "date" in faults(versions, "v0.1.0")[0]
    change(versions / "CHANGELOG.md", "not yet released", "2027-01-31")
    assert faults(versions, "v0.1.0") == []
    assert "tag" in faults(versions, "v0.1.1")[0]


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("packages/tierdex-client/pyproject.toml", "tierdex-client"),
        ("CHANGELOG.md", "heading"),
        ("tierdex/ids.py", "ids"),
    ],
)
def test_version_that_one_place_forgot_is_named(versions, name, word):
    change(versions / name, "0.1.0", "0.2.0")
    assert [word in fault for fault in faults(versions, None)] == [True]
