from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tandem import metrics
from tandem.metrics import CATALOGUE, acceptance_position, find_metric

NAMED = {
    "ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms", "tokens_per_chunk", "output_tokens_per_s", "goodput_per_s",
    "acceptance_length", "target_steps_per_token", "prompt_tokens", "completion_tokens",
    "llmperf_inter_token_latency_ms",
}  # fmt: skip
DOCUMENT = Path(__file__).parents[2] / "docs" / "measurement.md"
UNITS = {"_ms": {"ms"}, "_per_s": {"tokens/s", "requests/s"}}


def rows() -> dict[str, list[str]]:
    """The document's table of metrics, by name."""
    table = DOCUMENT.read_text().split("## Metrics")[1].split("### Acceptance")[0]
    lines = [
        [column.strip() for column in line.strip("|").split("|")] for line in table.splitlines() if line[:3] == "| `"
    ]
    return {re.sub("`", "", line[0]): line[1:] for line in lines}


def test_every_metric_that_others_rely_on_is_there() -> None:
    assert CATALOGUE.keys() >= NAMED


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_metric_says_all_of_itself(name: str) -> None:
    one = find_metric(name)

    assert one.name == name
    assert one.unit
    assert one.source
    assert one.better in {"lower", "higher", "neither"}
    assert len(one.definition) > 20


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_unit_in_a_name_is_the_metrics_unit(name: str) -> None:
    for ending, units in UNITS.items():
        if name.endswith(ending):
            assert find_metric(name).unit in units


def test_a_position_of_a_draft_has_a_metric_of_its_own() -> None:
    assert acceptance_position(3) == "acceptance_position_3"
    assert "token 3 was accepted" in find_metric("acceptance_position_3").definition


@pytest.mark.parametrize("name", ["acceptance_position_0", "acceptance_position_", "ttft", "itl_ms"])
def test_no_other_name_is_a_metric(name: str) -> None:
    with pytest.raises(KeyError):
        find_metric(name)


def test_the_catalogue_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(metrics.__file__).read_text())
    roots = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    roots |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert roots <= set(sys.stdlib_module_names)


def test_the_document_has_a_row_of_every_metric_and_of_no_other() -> None:
    assert {name.partition(",")[0] for name in rows()} == {*CATALOGUE, "acceptance_position_1"}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_the_document_states_a_metrics_unit(name: str) -> None:
    assert rows()[name][0] == find_metric(name).unit


def test_what_the_dashboards_of_the_post_and_the_verdict_need_is_published() -> None:
    assert {one.name for one in metrics.list_published_metrics()} == {
        "ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms", "output_tokens_per_s", "system_output_tokens_per_s",
        "goodput_per_s", "acceptance_length", "prompt_tokens", "completion_tokens", "llmperf_inter_token_latency_ms",
        "requests", "failed_requests", "unpublished_rounds",
    }  # fmt: skip


def test_a_namespace_has_the_environments_name() -> None:
    assert metrics.format_namespace("bench", "post", "tandem-post") == "Tandem/post"


@pytest.mark.parametrize(
    ("unit", "word"),
    [
        ("ms", "Milliseconds"), ("1", "None"), ("tokens", "Count"), ("tokens/s", "Count/Second"),
        ("requests/s", "Count/Second"), ("percent", "Percent"), ("bytes", "Bytes"), ("nodes", "Count"),
        ("requests", "Count"), ("rounds", "Count"),
    ],
)  # fmt: skip
def test_a_unit_has_cloudwatchs_word(unit: str, word: str) -> None:
    assert metrics.cloudwatch_unit(metrics.CloudWatchMetric("what it counts", unit=unit)) == word


@pytest.mark.parametrize(
    "one", [*metrics.CATALOGUE.values(), *metrics.CLOUDWATCH_METRICS.values()], ids=lambda one: one.name
)
def test_every_metric_has_a_unit_that_cloudwatch_knows(one: metrics.Metric | metrics.CloudWatchMetric) -> None:
    assert metrics.cloudwatch_unit(one)


@pytest.mark.parametrize("key", sorted(metrics.CLOUDWATCH_METRICS))
def test_a_watched_metric_stands_under_its_publisher_and_name(key: tuple[str, str]) -> None:
    assert (metrics.CLOUDWATCH_METRICS[key].publisher, metrics.CLOUDWATCH_METRICS[key].name) == key
    assert key[0] in metrics.PUBLISHERS
