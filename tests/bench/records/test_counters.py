from __future__ import annotations

import itertools

import msgspec
import pytest
from measured import arm, speculating

from tandem.bench.records.counter_names import FORMS, SAMPLES
from tandem.bench.records.counters import (
    OWN_MODEL,
    CounterChange,
    MetricsScrape,
    compute_difference,
    compute_rates,
    pair_scrapes,
    parse_page,
    read_scrapes,
)
from tandem.errors import InputError

# names and labels as vLLM 0.32 (V1) and 0.9.1 (V0) write them; the numbers are ours
V1_LIVE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 460.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 2.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 100.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 4.5
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 700.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 350.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 90.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 80.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_created gauge
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="m",position="0"} 1.76e+09
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto"} 1.0
"""

V0_FLAT = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="m"} 230.0
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{le="1.0",model_name="m"} 0.0
vllm:request_generation_tokens_bucket{le="+Inf",model_name="m"} 10.0
vllm:request_generation_tokens_count{model_name="m"} 10.0
vllm:request_generation_tokens_sum{model_name="m"} 1000.0
# TYPE vllm:time_per_output_token_seconds histogram
vllm:time_per_output_token_seconds_count{model_name="m"} 220.0
"""

# names and labels as vLLM 0.8.5 to 0.10.1 (V1) write them
V1_EARLY = """\
process_start_time_seconds 100.0
vllm:generation_tokens_total{engine="0",model_name="m"} 240.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 10.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 240.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="m"} 10.0
vllm:time_per_output_token_seconds_count{engine="0",model_name="m"} 80.0
"""
BOTH_NAMES = V1_EARLY + 'vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 80.0\n'

V1_FLAT = {"generation_tokens": 1000.0, "first_tokens": 10.0, "decode_steps": 220.0, "drafts": 0.0}
PLAIN = {"generation_tokens": 1000.0, "first_tokens": 10.0, "decode_steps": 990.0}
ZERO: dict[str, float] = {}


def changed(after: dict[str, float], before: dict[str, float] = ZERO) -> CounterChange:
    change = compute_difference(before, after)
    assert isinstance(change, CounterChange)
    return change


def scrape(when: str, counters: dict[str, float] | None, **changes: object) -> MetricsScrape:
    return MetricsScrape(
        **{
            "at_s": 1.0,
            "arm": "spec",
            "class_": "chat",
            "when": when,
            "counters": counters,
            **changes,
        }
    )


def test_v1_gives_acceptance_by_length_rate_and_position():
    rates = compute_rates(changed(parse_page(V1_LIVE)))

    assert rates.values == pytest.approx(
        {
            "acceptance_length": 4.5,
            "draft_acceptance_rate": 0.5,
            "acceptance_position_1": 0.9,
            "acceptance_position_2": 0.8,
            "target_steps_per_token": 110 / 460,
        }
    )
    assert not rates.is_indirect


def test_flat_counters_of_both_engines_give_tokens_a_decode_step():
    v1 = compute_rates(changed(V1_FLAT))
    v0 = compute_rates(changed(parse_page(V0_FLAT)))
    assert v1 == v0
    assert v1.is_indirect
    assert v1.values == pytest.approx(
        {"acceptance_length": 990 / 220, "target_steps_per_token": 230 / 1000}
    )


@pytest.mark.parametrize(
    "page",
    [V1_EARLY, BOTH_NAMES, V1_EARLY.replace('engine="0",', "")],
    ids=["0.8.5 to 0.10.1", "0.10.2 to 0.11", "0.8.0 to 0.8.4"],
)
def test_the_early_v1_counts_its_steps_under_their_former_name(page):
    assert compute_rates(changed(parse_page(page))).values["target_steps_per_token"] == 90 / 240


@pytest.mark.parametrize(
    "change",
    [
        changed(parse_page(BOTH_NAMES) | {"step_times": 200.0}),
        changed(
            parse_page(V1_EARLY.replace('engine="0",', "")) | {"running": 1.0}, {"running": 1.0}
        ),
    ],
    ids=["two names of one count", "two engines while requests run"],
)
def test_forms_that_disagree_give_no_figure(change):
    rates = compute_rates(change)
    assert rates.values == {}
    assert "which disagree" in rates.absence_reasons[0]


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ('vllm:num_requests_running{engine="0"} 1\n', "V1"),
        ("# TYPE vllm:spec_decode_num_drafts counter\nvllm:spec_decode_num_drafts_total 1\n", "V1"),
        ("# TYPE vllm:spec_decode_num_emitted_tokens counter\n", "V0"),
        ("vllm:generation_tokens_total 1\n", None),
        ('vllm:num_requests_swapped{engine="0"} 0\n', None),
    ],
)
def test_the_page_shows_its_engine_by_labels_and_names(line, engine):
    page = parse_page(line)
    assert changed(page, page).engine == engine


def test_each_form_of_counters_has_its_names_and_its_source():
    assert [form for form in FORMS if not form.source or not {*form.keys} <= SAMPLES.keys()] == []


def test_counts_are_between_scrapes_and_the_runtime_names_v0():
    before = {key: value / 2 for key, value in parse_page(V1_LIVE).items()} | {
        "accepted_tokens": 300.0
    }
    both = V1_FLAT | {
        "request_tokens_sum": 1000.0,
        "requests_finished": 10.0,
        "generation_tokens": 500.0,
    }
    assert compute_rates(changed(parse_page(V1_LIVE), before)).values[
        "acceptance_length"
    ] == pytest.approx(1 + 50 / 50)
    assert (
        compute_rates(changed(both), arm("spec", runtime="nxdi-v0")).values[
            "target_steps_per_token"
        ]
        == 0.5
    )


@pytest.mark.parametrize(
    ("before", "after", "failures"), [(1.0, 0.0, 0), (0.0, 1.0, 0), (0.0, 0.0, 1)]
)
def test_v0_alone_is_silent_while_requests_run_or_fail(before, after, failures):
    change = changed(parse_page(V0_FLAT) | {"running": after}, {"running": before})

    rates = compute_rates(change, failure_count=failures)

    assert rates.values == {}
    assert "some did not end in the turn" in rates.absence_reasons[0]
    assert "acceptance_length" in compute_rates(changed(V1_FLAT), failure_count=failures).values


@pytest.mark.parametrize(
    ("counters", "speculation", "values", "reason"),
    [
        (PLAIN, speculating(None), {"target_steps_per_token": 1.0}, "it does not speculate"),
        (PLAIN, None, {"target_steps_per_token": 1.0}, "nothing says that it speculates"),
        (
            PLAIN,
            speculating("eagle"),
            {"target_steps_per_token": 1.0, "acceptance_length": 1.0},
            "",
        ),
        (V1_FLAT, speculating("eagle", 3), {}, "more than a window of 3 can commit"),
    ],
    ids=["plain", "unknown", "one token a step", "beyond the window"],
)
def test_what_is_known_of_an_arm_decides_what_is_believed(counters, speculation, values, reason):
    rates = compute_rates(changed(counters), speculation)
    assert rates.values == values
    assert [reason in sentence for sentence in rates.absence_reasons] == [True] * bool(reason)


@pytest.mark.parametrize("wrong", [{"accepted_tokens": 800.0}, {"draft_tokens": 900.0}])
def test_draft_counters_that_contradict_each_other_give_no_acceptance(wrong):
    rates = compute_rates(changed(parse_page(V1_LIVE) | wrong), speculating("eagle", 7))
    assert rates.values.keys() == {"target_steps_per_token"}
    assert "contradict" in rates.absence_reasons[0]


@pytest.mark.parametrize(
    "counters",
    [
        {},
        {"drafts": 0.0},
        {"generation_tokens": 5.0},
        PLAIN | {"generation_tokens": 9.0},
        parse_page("llamacpp:tokens_predicted_total 4\n"),
    ],
)
def test_a_page_that_cannot_carry_a_figure_gives_the_reason(counters):
    rates = compute_rates(changed(counters), failure_count=1)
    assert rates.values == {}
    assert len(rates.absence_reasons) == 1


def test_a_page_of_several_engines_or_odd_values_is_read():
    engines = parse_page(V1_LIVE + V1_LIVE.replace('engine="0"', 'engine="1"'))
    odd = 'vllm:generation_tokens_total{model_name="m"} NaN\nvllm:num_requests_running 1\n'

    assert (engines["drafts"], engines["accepted_at_2"]) == (200.0, 160.0)
    assert parse_page(V1_LIVE.replace("_total", "")) == parse_page(V1_LIVE)
    assert parse_page(odd) == {"running": 1.0}


def test_a_page_of_two_models_gives_those_of_the_arm():
    other_model = V1_LIVE.replace('model_name="m"', 'model_name="other"').replace(" 460.0", " 9.0")
    page = V1_LIVE + other_model

    assert parse_page(page, {"m"}) == parse_page(V1_LIVE) | {OWN_MODEL: 1.0}
    assert parse_page(page, {"other"})["generation_tokens"] == 9
    assert parse_page(page, {"alias"}) == parse_page(page)


def test_a_page_that_two_arms_share_keeps_its_states():
    shared = scrape("after", {"drafts": 5.0, "began_s": 7.0}).drop_counters("two arms share it")

    changes, (note,) = pair_scrapes(iter([scrape("before", {"drafts": 1.0}), shared]))

    assert (changes, shared.counters) == ([], {"began_s": 7.0})
    assert note == "spec: counters are dropped (turns: 1): two arms share it"


@pytest.mark.parametrize(
    "page", ["<!doctype html><html>", '{"detail":"Not Found"}', "one two three"]
)
def test_a_page_that_is_no_prometheus_text_is_refused(page):
    with pytest.raises(InputError, match="no Prometheus text"):
        parse_page(page)


START = "process_start_time_seconds {}\nvllm:generation_tokens_total {}\n"


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ({"drafts": 5.0}, {"drafts": 4.0}, "(drafts fell)"),
        ({"drafts": 5.0}, {}, "(drafts fell)"),
        (parse_page(START.format(100, 5)), parse_page(START.format(900, 50)), "restarted"),
    ],
    ids=["fell", "vanished", "another start"],
)
def test_counters_that_fell_or_began_anew_mean_a_restart(before, after, word):
    assert word in compute_difference(before, after)


def test_a_clock_that_moves_is_no_restart():
    change = compute_difference(
        {"began_s": 1795283194.37, "drafts": 1.0}, {"began_s": 1795283195.37, "drafts": 3.0}
    )
    assert isinstance(change, CounterChange)


def test_scrapes_are_paired_by_turn_also_after_a_resume():
    pages = [
        ("before", 1, 0),
        ("before", 10, 1),
        ("after", 4, 0),
        ("after", 40, 1),
        ("before", 9, 0),
        ("after", 11, 0),
    ]
    pairs, notes = pair_scrapes(
        iter([scrape(when, {"drafts": drafts}, slot=slot) for when, drafts, slot in pages])
    )
    assert [(turn.slot, change.counts["drafts"]) for turn, change in pairs] == [
        (0, 3),
        (1, 30),
        (0, 2),
    ]
    assert notes == []


@pytest.mark.parametrize(
    ("scrapes", "reason"),
    [
        ([scrape("after", {})], "there is no scrape before it"),
        ([scrape("before", {})], "there is no scrape after it"),
        (
            [scrape("before", {}), scrape("after", None, error="status 404")],
            "could not be had (status 404)",
        ),
        ([scrape("before", {"drafts": 2.0}), scrape("after", {"drafts": 1.0})], "restarted"),
    ],
)
def test_a_turn_without_a_change_is_named_and_dropped(scrapes, reason):
    pairs, (note,) = pair_scrapes(iter(scrapes))
    assert pairs == []
    assert note.startswith("spec: counters are dropped (turns: 1): ")
    assert reason in note


def test_counters_of_a_dropped_arm_are_dropped_with_its_reason():
    pages = [
        scrape(when, {"drafts": drafts}, arm=arm)
        for arm, (when, drafts) in itertools.product(
            ("spec", "base"), (("before", 1.0), ("after", 2.0))
        )
    ]

    changes, notes = pair_scrapes(iter(pages), {"spec": "several servers answer"})

    assert [turn.arm for turn, _ in changes] == ["base"]
    assert notes == ["spec: counters are dropped (turns: 1): several servers answer"]


def test_scrapes_are_read_to_a_torn_end(tmp_path):
    path = tmp_path / "counters.jsonl"
    assert list(read_scrapes(path)) == []
    line = msgspec.json.encode(scrape("before", {"drafts": 1.0})) + b"\n"
    path.write_bytes(line + line[:-9])

    assert list(read_scrapes(path)) == [scrape("before", {"drafts": 1.0})]
    path.write_bytes(b"{}\n")
    with pytest.raises(InputError, match=r"counters\.jsonl:1: not a line of the counters"):
        list(read_scrapes(path))
