"""Samples of lm-eval, in the form that lm-eval 0.4.13 wrote of a simulated server on 2026-11-27."""

from __future__ import annotations

import json

import pytest

from tandem.bench.lm_eval.samples import list_sample_rows
from tandem.bench.records.quality_rows import QualityRow
from tandem.errors import InputError

SAMPLE = {
    "doc_id": 0,
    "doc": {
        "item": "sum-00",
        "prompt": "What is 431 + 254? Answer with the number alone.",
        "answer": "685",
    },
    "target": "685",
    "arguments": {
        "gen_args_0": {
            "arg_0": [
                '[{"role": "user", "content": "What is 431 + 254? Answer with the number alone."}]'
            ],
            "arg_1": {
                "until": ["</s>"],
                "do_sample": False,
                "temperature": 0.0,
                "max_gen_toks": 64,
            },
        }
    },
    "resps": [["685"]],
    "filtered_resps": ["685"],
    "filter": "last-number",
    "metrics": ["exact_match"],
    "doc_hash": "31aa55f7",
    "exact_match": 1.0,
}
FILE = "samples_my_sums_2026-11-27T21-00-17.483050.jsonl"


def write_samples(folder, *samples, name=FILE):
    (folder / "m").mkdir(exist_ok=True)
    (folder / "m" / name).write_text("".join(f"{json.dumps(sample)}\n" for sample in samples))
    return folder


def test_sample_is_a_row(tmp_path):
    rows = list_sample_rows(write_samples(tmp_path, SAMPLE), "spec", chance=0.25)
    assert rows == [
        QualityRow(
            task="my_sums, last-number", item="31aa55f7", arm="spec", right=True, chance=0.25
        )
    ]


def test_each_filter_is_a_task(tmp_path):
    rows = list_sample_rows(write_samples(tmp_path, SAMPLE, SAMPLE | {"filter": "none"}), "spec")
    assert [row.task for row in rows] == ["my_sums, last-number", "my_sums"]


def test_last_call_of_a_task_counts(tmp_path):
    write_samples(tmp_path, SAMPLE)
    write_samples(tmp_path, SAMPLE | {"exact_match": 0.0}, name=FILE.replace("T21", "T22"))
    assert [row.right for row in list_sample_rows(tmp_path, "spec")] == [False]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"arguments": {"gen_args_0": {"arg_0": "What is it?", "arg_1": " four"}}},
            "a multiple choice",
        ),
        ({"exact_match": None}, "no exact match"),
        ({"exact_match": 0.5}, "no exact match"),
        ({"doc_hash": 1}, "doc_hash"),
    ],
)
def test_sample_that_is_none_of_ours_is_refused(tmp_path, changes, problem):
    with pytest.raises(InputError, match=problem):
        list_sample_rows(write_samples(tmp_path, SAMPLE | changes), "spec")


def test_folder_without_samples_is_refused(tmp_path):
    with pytest.raises(InputError, match="no samples"):
        list_sample_rows(tmp_path, "spec")


def test_repeated_item_keeps_its_rows(tmp_path):
    rows = list_sample_rows(write_samples(tmp_path, SAMPLE, SAMPLE | {"doc_id": 1}), "spec")
    assert [row.item for row in rows] == ["31aa55f7", "31aa55f7"]


def test_group_of_a_document_is_that_of_its_row(tmp_path):
    sample = SAMPLE | {"doc": {**SAMPLE["doc"], "group": 7}}
    assert [row.group for row in list_sample_rows(write_samples(tmp_path, sample), "spec")] == ["7"]


def test_another_field_may_name_the_group(tmp_path):
    rows = list_sample_rows(write_samples(tmp_path, SAMPLE), "spec", group="answer")
    assert [row.group for row in rows] == ["685"]


def test_a_passage_as_a_group_goes_by_its_digest(tmp_path):
    sample = SAMPLE | {"doc": {"passage": "long " * 100}}
    (row,) = list_sample_rows(write_samples(tmp_path, sample), "spec", group="passage")
    assert len(row.group) == 64


def test_a_field_that_no_document_has_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no field 'passage'; it has answer, item, prompt"):
        list_sample_rows(write_samples(tmp_path, SAMPLE), "spec", group="passage")
