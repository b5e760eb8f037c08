"""A run that commit 59a2544 published is not sent again: tests/frozen/objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tandem.publish.batch import build_batches

pytestmark = pytest.mark.endpoint
OBJECTS = json.loads((Path(__file__).parents[1] / "frozen" / "objects" / "published_59a2544.json").read_text())


@pytest.mark.parametrize("holder", ["bucket", "folder"])
def test_frozen_rounds_are_not_sent_again(published, proxy, holder):
    published.environment = "home"
    published.made(classes=("chat",), concurrencies=(1,), gaps=3, first_s=OBJECTS["first_s"])
    if holder == "folder":
        (published.folder / "published.jsonl").write_text(OBJECTS["local published.jsonl"])
    else:
        for key in filter(lambda key: key.startswith("results/"), OBJECTS):
            published.endpoint.client("s3").put_object(Bucket=published.bucket, Key=key, Body=OBJECTS[key].encode())
    proxy.forget()

    report = published.publish()

    assert (report.is_whole, report.sent, proxy.requests("PutMetricData")) == (True, 0, ())


def test_a_batch_that_a_journal_only_announces_is_sent(published):
    published.made(classes=("chat",))
    digests = [build_batches(figures.values)[0].digest for figures in published.rounds()]
    journal = [
        json.dumps({"environment": published.environment, "round": number, "digest": digests[number], "state": state})
        for number, state in ((0, "intent"), (0, "sent"), (1, "intent"))
    ]
    (published.folder / "published.jsonl").write_text("\n".join(journal))

    assert (published.publish().sent, published.lost()) == (1, len(published.expected()) // 2)
