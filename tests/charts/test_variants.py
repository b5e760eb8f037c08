"""Two variants of an experiment differ in what is declared to differ, and in nothing else."""

from __future__ import annotations

import copy
import json
from itertools import combinations
from typing import Any

import pytest
from chart_cases import (
    CATALOGUE,
    EXPERIMENTS,
    HOSTED,
    server_of,
    stages,
    templates,
)
from chart_cases import variant as find

from tandem.declarations import names
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.variant_key import compute_artifact_key

Template = dict[str, Any]
PAIRS = [
    pytest.param(
        environment,
        experiment,
        first.name,
        second.name,
        id=f"{experiment}-{first.name}-{second.name}",
    )
    for environment, experiment in HOSTED
    for first, second in combinations(EXPERIMENTS[experiment].all_variants(), 2)
]


def without_speculation(template: Template, experiment: Experiment, variant: Variant) -> Template:
    """A pod template with the speculation fields taken out, and the name and the artifact made
    unknown.

    Each is taken from the one place where it may stand, so that a stray one elsewhere is left to be
    seen.
    """
    left = copy.deepcopy(template)
    spelling = CATALOGUE.runtimes[experiment.runtime].spelling
    container = server_of(left["spec"])
    arguments = container["args"]
    at = arguments.index(spelling.neuron_config_flag) + 1
    settings = json.loads(arguments[at])
    fields = settings[spelling.neuron_config_key] if spelling.neuron_config_key else settings
    for setting in spelling.speculation_neuron_config.get(variant.mode, {}):
        del fields[setting]
    arguments[at] = settings
    if "--speculative-config" in arguments:
        begin = arguments.index("--speculative-config")
        del arguments[begin : begin + 2]

    admission_without_speculation(left["spec"]["initContainers"][0], variant)
    assert left["metadata"]["labels"].pop("app.kubernetes.io/name") == variant.name
    (apart,) = left["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["labelSelector"]["matchLabels"].pop("app.kubernetes.io/name") == variant.name
    assert left["spec"]["nodeSelector"].pop(names.raise_label(variant)) == experiment.name
    key = compute_artifact_key(experiment, variant, CATALOGUE)
    text = json.dumps(left)
    for own in (names.compile_job_name(key), key.digest):
        text = text.replace(own, "<artifact>")
    return json.loads(text)


def admission_without_speculation(admit: dict[str, Any], variant: Variant) -> None:
    """Take the draft's model out of the admission; the key's name stands for its fields."""
    if variant.draft:
        at = admit["args"].index(CATALOGUE.models[variant.draft].full_id())
        del admit["args"][at - 1 : at + 1]


def paths(value: Any, at: str = "") -> dict[str, Any]:
    """Path to leaf."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {at: value}
    return {
        path: leaf
        for key, inner in value.items()
        for path, leaf in paths(inner, f"{at}/{key}").items()
    }


def undeclared(first: Template, second: Template) -> set[str]:
    mine = paths(first)
    theirs = paths(second)
    return {path for path in mine | theirs if mine.get(path, ...) != theirs.get(path, ...)}


def compare(
    bodies: list[dict[str, Any]], experiment: Experiment, first: str, second: str
) -> set[str]:
    result = templates(bodies)
    return undeclared(
        *(
            without_speculation(result[name], experiment, find(experiment, name))
            for name in (first, second)
        )
    )


@pytest.mark.parametrize(("environment", "experiment", "first", "second"), PAIRS)
def test_pods_differ_only_in_speculation_names_and_artifact(environment, experiment, first, second):
    assert (
        compare(stages(environment, experiment)["serve"], EXPERIMENTS[experiment], first, second)
        == set()
    )
