"""Observations are all that the records say of each request, and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from measured import failed, record, write_run

from tandem.bench.figures.request_table import (
    NO_DIGEST,
    UNKNOWN,
    PromptKey,
    read_outputs,
    read_request_table,
)
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.counters import MetricsScrape
from tandem.errors import InputError


def test_every_request_is_a_row_with_its_names_as_codes(tmp_path):
    seen = read_request_table(
        write_run(
            tmp_path,
            [
                record(),
                failed(arm="spec", class_="chat", concurrency=None, rate_per_s=2.5, round=3),
            ],
        )
    )

    assert (seen.arms, seen.classes, seen.errors) == (
        ("base", "spec"),
        ("repeat", "chat"),
        ("closed",),
    )
    assert [seen.loads[code] for code in seen.load] == [
        LoadLevel(concurrency=4),
        LoadLevel(rate_per_s=2.5),
    ]
    assert seen.prompts == (PromptKey("real", "repeat-00"),)
    assert seen.round.tolist() == [0, 3]
    assert seen.failed.tolist() == [False, True]
    assert seen.error.tolist() == [UNKNOWN, 0]
    assert all(np.isnan(values[1]) for values in seen.figures.values())


def test_the_baseline_is_the_first_arm_of_the_manifest(tmp_path):
    seen = read_request_table(
        write_run(tmp_path, [record(arm="spec"), record(arm="base#2"), record()])
    )
    assert (seen.baseline, seen.variants, seen.control) == ("base", ("spec",), "base#2")


def test_equal_outputs_have_equal_digests_and_others_do_not(tmp_path):
    texts = [
        {"text": "a"},
        {"text": "a"},
        {"text": "b"},
        {"text": "a", "reasoning": "hm"},
        {"text": "a", "tool_calls": "find{}"},
        {"text": ""},
    ]

    first, same, different, thought, call, empty = read_request_table(
        write_run(tmp_path, [record(**text) for text in texts])
    ).output

    assert first == same
    assert len({first, different, thought, call, empty}) == 5
    assert empty == NO_DIGEST


def test_token_ids_are_digested_where_the_server_gave_them(tmp_path):
    records = [
        record(token_ids=(1, 2)),
        record(token_ids=(1, 2)),
        record(token_ids=(1, 3)),
        record(),
    ]
    first, same, different, none = read_request_table(write_run(tmp_path, records)).ids
    assert first == same != different
    assert none == NO_DIGEST


def test_outputs_are_read_from_where_they_stand(tmp_path):
    seen = read_request_table(
        write_run(tmp_path, [record(text="é" * 100), record(text="two", token_ids=(5,))])
    )
    assert [output.text for output in read_outputs(seen, [1, 0])] == ["two", "é" * 100]
    assert next(read_outputs(seen, [1])).token_ids == (5,)
    (tmp_path / "records.jsonl").write_bytes(b"")
    with pytest.raises(InputError, match=r"records\.jsonl: it changed meanwhile"):
        next(read_outputs(seen, [0]))


def scrape(began_s: float, **changes: object) -> MetricsScrape:
    fields = {
        "at_s": 1.0,
        "arm": "base",
        "concurrency": 4,
        "when": "before",
        "counters": {"began_s": began_s},
    }
    return MetricsScrape(**{**fields, **changes})


@pytest.mark.parametrize(
    ("requests", "scrapes", "starts"),
    [
        (
            [{}, {"round": 1}, {"round": 2}],
            [(100.0, {}), (200.0, {"round": 1})],
            ["100.00", "200.00", None],
        ),
        (
            [{}, {"class_": "chat"}, {"class_": "code"}],
            [(100.0, {}), (200.0, {"class_": "chat"})],
            ["100.00", "200.00", None],
        ),
        ([{}, {"class_": "chat"}], [(100.0, {"class_": None})], ["100.00", "100.00"]),
        ([{"start": "pod-7"}], [(100.0, {"class_": None})], ["pod-7"]),
    ],
    ids=["of its turn", "of its class", "while classes are mixed", "recorded before the page"],
)
def test_a_servers_start_is_by_its_page_of_the_turn(tmp_path, requests, scrapes, starts):
    pages = [scrape(began_s, **{"class_": "repeat", **changes}) for began_s, changes in scrapes]
    seen = read_request_table(
        write_run(tmp_path, [record(**changes) for changes in requests], pages)
    )
    assert [seen.starts[code] if code >= 0 else None for code in seen.start] == starts


def test_starts_of_several_servers_behind_one_address_are_unknown(tmp_path):
    pages = [scrape(began_s, round=number) for number, began_s in enumerate((100.0, 200.0, 100.0))]
    records = [
        record(round=number, start=f"{arm}-{number}", arm=arm)
        for number, arm in itertools.product(range(3), ("base", "base#2", "spec"))
    ]

    seen = read_request_table(write_run(tmp_path, records, pages))

    assert [arm for arm, _ in seen.replicas] == ["base", "base#2"]
    assert {
        seen.arms[arm] for arm, start in zip(seen.arm, seen.start, strict=True) if start >= 0
    } == {"spec"}
    assert len({start for start in seen.start if start >= 0}) == 3


def test_arrays_have_names_and_figures_of_every_request(tmp_path):
    first = record()
    second = failed(arm="spec", class_="chat", concurrency=None, rate_per_s=2.5, content=None)
    table = read_request_table(write_run(tmp_path, [first, second]))

    arrays = table.to_arrays()

    assert {len(column) for column in arrays.values()} == {2}
    assert arrays["arm"].tolist() == ["base", "spec"]
    assert arrays["error"].tolist() == [None, "closed"]
    assert arrays["content"].tolist() == ["ok", None]
    np.testing.assert_equal(arrays["concurrency"], [4.0, np.nan])
    np.testing.assert_equal(arrays["rate_per_s"], [np.nan, 2.5])
    np.testing.assert_equal(arrays["e2e_ms"], table.figures["e2e_ms"])
