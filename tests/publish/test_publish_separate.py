"""What is published stays apart and keeps its percentiles."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from publishing import Made, read

pytestmark = pytest.mark.endpoint


def test_environments_experiments_classes_and_concurrencies_are_series_of_their_own(published, tmp_path):
    runs = []
    for number, (environment, experiment) in enumerate((a, b) for a in ("alpha", "beta") for b in ("post", "real")):
        run = dataclasses.replace(
            published, folder=tmp_path / str(number), environment=f"{published.environment}{environment}"
        )
        runs.append(run.made(seed=number, number=1, experiment=experiment))
        run.publish()

    assert [run.counts() for run in runs] == [run.expected() for run in runs]


def test_p50_and_p99_are_those_of_the_records_within_half_a_percent(published):
    published.made(number=1, gaps=500)

    published.publish()

    for stat, quantile in (("p50", 0.5), ("p99", 0.99)):
        true = {(one.metric, one.dimensions, one.at_s): np.quantile(one.values, quantile)
                for one in published.made_of.data(0)}  # fmt: skip
        shown = read(published.endpoint, published.run.namespace, true, stat)
        assert max(abs(shown[key] / true[key] - 1) for key in true) <= 0.005


def test_rounds_that_share_a_minute_add_up(published):
    published.made(number=3, step_s=0)

    published.publish()

    assert published.counts() == published.expected()


def test_a_second_publish_sends_nothing(published, proxy):
    published.publish()
    proxy.forget()

    report = published.publish()

    assert (report.sent, report.rounds, proxy.requests("PutMetricData")) == (0, [], ())


def test_records_of_each_round_and_the_other_files_are_in_s3(published):
    published.publish()

    assert published.objects() == [
        "manifest.json", "published/round-00000.jsonl", "published/round-00001.jsonl",
        "records/round-00000.jsonl", "records/round-00001.jsonl",
    ]  # fmt: skip


def test_a_large_round_is_stored_whole_with_its_checksum(published):
    path = published.folder / "records.jsonl"
    path.write_bytes(bytes(20 << 20))
    one = next(published.made_of.rounds())
    whole = dataclasses.replace(one.records[0], first=0, end=20 << 20)

    published.publish(lambda _: [dataclasses.replace(one, records=(whole,))])

    key = f"{published.run.prefix}records/round-00000.jsonl"
    head = published.endpoint.client("s3").head_object(Bucket=published.bucket, Key=key, ChecksumMode="ENABLED")
    assert (head["ContentLength"], "ChecksumSHA256" in head) == (20 << 20, True)


def test_a_round_that_is_not_whole_is_stored_and_not_sent(published, proxy):
    one = dataclasses.replace(next(published.made_of.rounds()), complete=False)

    report = published.publish(lambda _: [one])

    assert (proxy.requests("PutMetricData"), report.whole, len(report.notes)) == ((), True, 1)
    assert "records/round-00000.jsonl" in published.objects()


def test_a_round_without_figures_is_published_once(published):
    one = dataclasses.replace(next(published.made_of.rounds()), data=())
    published.publish(lambda _: [one])

    report = published.publish(lambda _: [one])

    assert (report.rounds, report.whole) == ([], True)


def test_made_rounds_follow_from_their_seed(tmp_path):
    one, other = (list(Made(folder=tmp_path, seed=3, first_s=0).rounds()) for _ in range(2))

    assert one == other
