"""A real run of llmperf against the twin: each trap of its figures is in its files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import llmperf_comparison as comparison
import pytest
from llmperf_comparison import ComparisonScenario

from tandem.errors import InputError

RUNS = Path(__file__).parents[1] / "bench" / "llmperf_runs"


@cache
def scenarios() -> dict[str, ComparisonScenario]:
    return {scenario.name: scenario for scenario in comparison.read_scenarios(RUNS)}


def test_it_counts_chunks_as_tokens_and_tandem_tokens():
    """A burst's tokens come in one event, so its latency is that of a step."""
    _, _, ours, theirs, _ = scenarios()["bursts"]

    assert theirs.figures["tpot_ms"] > 2 * theirs.true_median("tpot_ms")
    assert theirs.figures["tpot_ms"] == pytest.approx(theirs.true_median("chunk_gap_ms"), rel=0.15)
    assert ours.figures["tpot_ms"] == pytest.approx(ours.true_median("tpot_ms"), rel=0.01)
    # its definition on Tandem's records, of another run of the same knobs
    assert ours.figures[comparison.LLMPERF_ITL] == pytest.approx(
        theirs.figures[comparison.LLMPERF_ITL], rel=0.1
    )


@pytest.mark.parametrize("name", ["plain", "stall"])
def test_tandem_counts_tokens_and_stalls_as_the_server_does_and_llmperf_does_not(name):
    _, _, ours, theirs, _ = scenarios()[name]

    assert (
        ours.figures[comparison.TOKENS]
        == ours.true_median("tokens")
        == theirs.true_median("tokens")
    )
    assert theirs.figures[comparison.TOKENS] > 128
    assert theirs.figures[comparison.ALL_PER_S] < theirs.true_per_s
    assert (ours.figures["longest_gap_ms"] > 450) is (name == "stall")
    assert "longest_gap_ms" not in theirs.figures


def test_it_throws_all_but_one_of_the_last_answers_away_and_tandem_counts_what_it_sent():
    for scenario in scenarios().values():
        ours = scenario.tandem
        theirs = scenario.llmperf
        assert ours.result_count + ours.errors == len(ours.entries) == 8
        if scenario.name in {"plain", "bursts", "stall"}:
            # 4 at once: 3 are under way when the 8th has come
            assert (theirs.result_count, len(theirs.complete_entries)) == (8, 11)


def test_asking_for_usage_ends_it_without_a_file():
    scenario = scenarios()["usage"]
    assert [(call.how, call.exit_code, call.counted) for call in scenario.calls] == [
        ("crashed", 1, 0)
    ]
    assert "KeyError: 'error_code'" in scenario.calls[0].detail
    assert len(scenario.llmperf.complete_entries) == 4  # one for each thread, which died of it


def test_an_error_is_counted_by_tandem_alone():
    _, _, ours, theirs, _ = scenarios()["error"]

    assert (theirs.failure_count, theirs.errors, theirs.result_count) == (1, 0, 8)
    (failure,) = (entry for entry in theirs.entries if entry.finish_reason is None)
    later = [entry for entry in theirs.complete_entries if entry.accepted_s > failure.accepted_s]
    in_flight = []
    for entry in later:
        in_flight.append(  # noqa: PERF401
            sum(rival.accepted_s <= entry.accepted_s < rival.ended_s for rival in later)
        )
    assert max(in_flight) == 3  # of 4: the thread that met it has ended
    assert (ours.failure_count, ours.errors) == (1, 1)


def test_a_folder_that_is_no_run_is_told(tmp_path):
    with pytest.raises(InputError, match=r"about\.json.*make llmperf"):
        list(comparison.format_comparison(tmp_path))
