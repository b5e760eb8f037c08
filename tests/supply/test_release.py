"""`make release` on a small repository: version, changelog and checksums, and what must be done
first."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from supply import release

CHANGELOG = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 - 2026-11-01\n\n- first\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "CHECKS", ())
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / ".gitignore").write_text("build/\n")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/a.yaml").write_text("a: 1\n")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for words in (
        ["init", "--quiet"],
        ["add", "--all"],
        [*identity, "commit", "--quiet", "--message", "x"],
    ):
        subprocess.run(["git", *words], cwd=root, check=True)


def test_a_release_writes_version_changes_and_checksums(root, capsys):
    assert release.main(["0.2.0"], root) == 0
    assert 'version = "0.2.0"' in (root / "pyproject.toml").read_text()
    changes = (root / "build/release/0.2.0/CHANGES.md").read_text()
    assert changes.startswith("## 0.2.0 - 20")
    assert changes.endswith("\n\n- new\n")
    assert f"## Unreleased\n\n{changes}\n## 0.1.0" in (root / "CHANGELOG.md").read_text()
    sums = root / "build/release/0.2.0/manifests.sha256"
    subprocess.run(
        ["sha256sum", "--check", "--strict", str(sums)], cwd=root, check=True, capture_output=True
    )
    assert "git tag --annotate v0.2.0" in capsys.readouterr().out


@pytest.mark.parametrize("version", ["0.0.9", "1.0", "v1.0.0", "0.1.0"])
def test_a_version_that_is_none_or_was_released_is_refused(root, version):
    before = (root / "CHANGELOG.md").read_text()
    assert release.main([version], root) == 2
    assert (root / "CHANGELOG.md").read_text() == before


def test_a_checkout_with_changes_is_refused(root, capsys):
    (root / "manifests/a.yaml").write_text("a: 2\n")
    assert release.main(["0.2.0"], root) == 2
    assert "commit them first" in capsys.readouterr().err


def test_stale_manifests_are_refused(root, monkeypatch):
    monkeypatch.setattr(
        release,
        "CHECKS",
        ((("-c", "raise SystemExit(1)"), "manifests/ is stale", "tandem render"),),
    )
    assert release.main(["0.2.0"], root) == 2
