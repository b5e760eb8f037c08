"""What is published stays apart, keeps its percentiles, and stands in S3."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tandem.errors import TandemError

pytestmark = pytest.mark.endpoint


def test_one_folder_may_go_to_two_environments(run):
    second = dataclasses.replace(run, environment=f"{run.environment}b")
    run.publish()
    second.publish()
    assert run.counts() == second.counts() == run.expected()


def test_a_second_publish_of_a_copy_sends_nothing(run, proxy, tmp_path):
    run.publish()
    proxy.forget()

    reports = [
        run.publish(),
        dataclasses.replace(run, folder=tmp_path / "copy").made().publish(),
    ]

    assert [(report.sent, report.rounds, report.is_whole) for report in reports] == [
        (0, [], True)
    ] * 2
    assert proxy.requests("PutMetricData") == ()


def test_records_markers_and_the_other_files_are_in_s3(run):
    run.publish()

    markers = [f"published/{run.environment}/round-0000{number}.json" for number in range(2)]
    assert run.objects() == [
        "manifest.json",
        *markers,
        "records/round-00000.jsonl",
        "records/round-00001.jsonl",
    ]
    key = f"{run.destination.prefix}{markers[1]}"
    marker = json.load(run.endpoint.client("s3").get_object(Bucket=run.bucket, Key=key)["Body"])
    assert (marker["round"], marker["batches"]) == (1, 3)


def test_a_round_that_is_not_whole_is_not_sent(run, proxy):
    figures = next(run.rounds())
    report = run.publish([dataclasses.replace(figures, is_complete=False)])

    assert proxy.requests("PutMetricData") == ()
    assert report.is_whole
    assert len(report.notes) == 1
    assert run.objects() == ["manifest.json", "records/round-00000.jsonl"]

    grown = dataclasses.replace(figures, ranges=((0, 24),))
    assert run.publish([grown]).rounds == [0]
    key = f"{run.destination.prefix}records/round-00000.jsonl"
    assert run.endpoint.client("s3").head_object(Bucket=run.bucket, Key=key)["ContentLength"] == 24


def test_records_that_cannot_be_read_are_named(run):
    (run.folder / "records.jsonl").unlink()
    with pytest.raises(TandemError, match=r"records\.jsonl: the file cannot be read"):
        run.publish()
