"""The lists of tests/shipped.py are complete: no environment or experiment of the repository
escapes its tests."""

from __future__ import annotations

import yaml
from document_text import list_committed
from shipped import ENVIRONMENTS, EXPERIMENTS, ROOT, load_shipped

EXAMPLE_ACCOUNT = "111122223333"
"""The account of every environment that the repository ships; one that is filled in names its
own."""


def test_the_list_names_each_committed_environment_of_the_example_account() -> None:
    files = [
        ROOT / name
        for name in list_committed()
        if name.startswith("environments/") and name.endswith(".yaml")
    ]
    examples = [
        file.stem
        for file in files
        if yaml.safe_load(file.read_text())["account"] == EXAMPLE_ACCOUNT
    ]

    assert sorted(examples) == list(ENVIRONMENTS)


def test_the_list_names_each_experiment_that_these_environments_host() -> None:
    assert sorted(load_shipped().experiments) == list(EXPERIMENTS)
