"""The dashboard of an experiment: arms side by side, against the baseline."""

from __future__ import annotations

from hosted import asking, by_part, drawn, graphs, words

from tandem.bench.suites.suite import load_suite as suite
from tandem.cloudwatch_metrics import ALL_VALUES
from tandem.monitoring.widget import Dashboard

ENVIRONMENT = "post-us-east-2"
FAST = "qwen-sd-vllm"
DRAFTED = {"mode": "fused", "draft": "Qwen/Qwen3-1.7B", "num_speculative_tokens": 7}


def post() -> Dashboard:
    return drawn(ENVIRONMENT)["post"]


def posting(**given: object) -> Dashboard:
    """The dashboard of the post's experiment with some of its values changed."""
    return by_part(asking(ENVIRONMENT, "post", **given))["post"]


def test_the_choices_are_the_classes_and_loads_of_the_suites():
    classes, loads = post().variables.values()
    assert classes == (*suite("post").classes, *suite("real").classes, ALL_VALUES)
    assert loads == ("4", "1")


OWN_SUITE = {"file": "prompts/support.jsonl", "sha256": "1" * 64}


def test_the_classes_of_a_file_are_those_that_the_experiment_states():
    suites = [{**OWN_SUITE, "classes": {"billing": 40, "support": 20}}]
    classes, loads = posting(suites=suites).variables.values()
    assert (classes, loads) == (("billing", "support", ALL_VALUES), ("4", "1"))


def test_a_file_whose_classes_nobody_states_is_watched_as_a_whole():
    assert posting(suites=[OWN_SUITE]).variables["PromptClass"] == (ALL_VALUES,)


def test_without_a_baseline_no_speed_up_is_drawn_and_that_is_said():
    dashboard = posting(variants=[{"name": FAST, **DRAFTED}])
    assert not [graph for graph in graphs(dashboard) if "speed-up" in graph.title]
    assert "there is no baseline" in words(dashboard)
