"""An environment is made where it does not fit its list, and counts as made when all is in it."""

from __future__ import annotations

import pytest

from rehearsal.aws.installation import EndpointError
from rehearsal.aws.installation import ensure_python as ensure_endpoint
from rehearsal.virtual_environment import ensure_environment
from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.installation import ensure_python as ensure_vllm


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("six==1.17.0")
    return path


def create(interpreter):
    """Make an environment without a package."""
    interpreter.parent.mkdir(parents=True)
    interpreter.touch()


def test_an_environment_that_fits_is_not_made_again(requirements, tmp_path):
    interpreter = ensure_environment(tmp_path / "own", requirements, create)
    assert ensure_environment(tmp_path / "own", requirements, pytest.fail) == interpreter


def test_another_list_makes_the_environment_again(requirements, tmp_path):
    ensure_environment(tmp_path / "own", requirements, create)
    requirements.write_text("six==1.16.0")
    interpreters = []
    ensure_environment(tmp_path / "own", requirements, interpreters.append)
    assert interpreters == [tmp_path / "own/bin/python"]


@pytest.mark.parametrize(
    ("ensure_python", "error"), [(ensure_endpoint, EndpointError), (ensure_vllm, VllmSetupError)]
)
def test_an_environment_whose_packages_failed_is_not_taken_for_whole(
    ensure_python, error, tmp_path, monkeypatch
):
    monkeypatch.setattr("venv.create", lambda *_, **__: None)
    (tmp_path / "own/bin").mkdir(parents=True)
    (tmp_path / "own/bin/python").symlink_to("/bin/false")
    with pytest.raises(error, match="pip could not install"):
        ensure_python(tmp_path / "own", lambda _: None)
    assert not (tmp_path / "own/requirements.sha256").exists()
