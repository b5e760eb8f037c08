"""A run that commit 59a2544 published is not sent again: tests/frozen/objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.endpoint
OBJECTS = json.loads((Path(__file__).parents[1] / "frozen" / "objects" / "published_59a2544.json").read_text())


def test_frozen_rounds_are_not_sent_again(published, proxy):
    published.environment = "home"
    published.made(classes=("chat",), concurrencies=(1,), gaps=3, first_s=OBJECTS["first_s"])
    for key, body in OBJECTS.items():
        if key.startswith("results/"):
            published.endpoint.client("s3").put_object(Bucket=published.bucket, Key=key, Body=body.encode())
    proxy.forget()

    report = published.publish()

    assert (report.is_whole, report.sent, proxy.requests("PutMetricData")) == (True, 0, ())
