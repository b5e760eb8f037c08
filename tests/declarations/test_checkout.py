"""A checkout reads its own files; an installed package reads what its build wrote, and says what it
cannot do."""

from __future__ import annotations

import shutil

import pytest

from tandem.cli.selection import Selection
from tandem.declarations.checkout import (
    CHECKOUT_EXPERIMENT,
    PACKAGE_EXPERIMENT,
    ROOT,
    is_checkout,
    require_checkout,
)
from tandem.declarations.faults import SpecError
from tandem.declarations.project_image import TOOLS, write_built_images
from tandem.declarations.workspace import load_experiment
from tandem.errors import InputError


@pytest.fixture
def package(tmp_path):
    """The folder of a package that was built from this checkout."""
    (tmp_path / PACKAGE_EXPERIMENT).parent.mkdir(parents=True)
    shutil.copy(ROOT / CHECKOUT_EXPERIMENT, tmp_path / PACKAGE_EXPERIMENT)
    write_built_images(ROOT, tmp_path)
    return tmp_path


def test_this_is_a_checkout_and_a_built_package_is_none(package):
    assert (is_checkout(), is_checkout(package)) == (True, False)


def test_a_built_package_reads_no_recipe_that_lies_beside_it(package):
    (package / TOOLS.folder).mkdir(parents=True)
    (package / TOOLS.dockerfile).write_text("ARG BASE_IMAGE=other.dev/python:1\n")
    assert TOOLS.base(package) == TOOLS.base()


def test_built_in_experiment_is_read_without_a_folder(package):
    file = load_experiment(package / "experiments", "post", package)
    assert file.document.file == str(package / PACKAGE_EXPERIMENT)


def test_the_users_own_experiment_wins(package):
    own_file = package / "experiments" / "post.yaml"
    own_file.parent.mkdir()
    own_file.write_text(
        (ROOT / CHECKOUT_EXPERIMENT).read_text().replace("max_num_seqs: 4", "max_num_seqs: 2")
    )
    assert load_experiment(own_file.parent, "post", package).record.serving.max_num_seqs == 2


def test_an_unknown_experiment_is_refused_with_those_that_there_are(package):
    with pytest.raises(SpecError) as refusal:
        load_experiment(Selection().experiments, "pots", package)
    [fault] = refusal.value.faults
    assert (fault.file, fault.got, "post" in fault.allowed.split(", ")) == (
        "experiments/pots.yaml",
        "file not found",
        True,
    )


def test_a_built_package_refuses_what_takes_a_checkout(package):
    require_checkout("`tandem render`")
    with pytest.raises(InputError, match="`tandem render` needs a checkout of the repository"):
        require_checkout("`tandem render`", package)
