"""What is published stays apart, keeps its percentiles, and stands in S3."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tandem.errors import TandemError

pytestmark = pytest.mark.endpoint


def test_one_folder_may_go_to_two_environments(published):
    second = dataclasses.replace(published, environment=f"{published.environment}b")
    published.publish()
    second.publish()
    assert published.counts() == second.counts() == published.expected()


def test_a_second_publish_of_a_copy_sends_nothing(published, proxy, tmp_path):
    published.publish()
    proxy.forget()

    reports = [
        published.publish(),
        dataclasses.replace(published, folder=tmp_path / "copy").made().publish(),
    ]

    assert [(report.sent, report.rounds, report.is_whole) for report in reports] == [
        (0, [], True)
    ] * 2
    assert proxy.requests("PutMetricData") == ()


def test_records_markers_and_the_other_files_are_in_s3(published):
    published.publish()

    markers = [f"published/{published.environment}/round-0000{number}.json" for number in range(2)]
    assert published.objects() == [
        "manifest.json",
        *markers,
        "records/round-00000.jsonl",
        "records/round-00001.jsonl",
    ]
    key = f"{published.destination.prefix}{markers[1]}"
    marker = json.load(
        published.endpoint.client("s3").get_object(Bucket=published.bucket, Key=key)["Body"]
    )
    assert (marker["round"], marker["batches"]) == (1, 3)


def test_an_object_named_like_a_marker_is_none(published):
    key = f"{published.destination.prefix}published/{published.environment}/round-x.json"
    published.endpoint.client("s3").put_object(Bucket=published.bucket, Key=key, Body=b"{}")
    assert published.publish().rounds == [0, 1]


def test_a_round_that_is_not_whole_is_not_sent(published, proxy):
    figures = next(published.rounds())
    report = published.publish([dataclasses.replace(figures, is_complete=False)])

    assert (proxy.requests("PutMetricData"), report.is_whole, len(report.notes)) == ((), True, 1)
    assert published.objects() == ["manifest.json", "records/round-00000.jsonl"]

    grown = dataclasses.replace(figures, ranges=((0, 24),))
    assert published.publish([grown]).rounds == [0]
    key = f"{published.destination.prefix}records/round-00000.jsonl"
    assert (
        published.endpoint.client("s3").head_object(Bucket=published.bucket, Key=key)[
            "ContentLength"
        ]
        == 24
    )


def test_records_that_cannot_be_read_are_named(published):
    (published.folder / "records.jsonl").unlink()
    with pytest.raises(TandemError, match=r"records\.jsonl: the file cannot be read"):
        published.publish()
