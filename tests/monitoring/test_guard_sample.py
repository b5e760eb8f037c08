"""What the guard sends (tests/monitoring/samples/guard.json), recorded again by a pass at the local
endpoint.

To record it anew after a change: `RECORD=1 pytest tests/monitoring/test_guard_sample.py`.
"""

from __future__ import annotations

import json
import os
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from guard_world import GUARDED
from recorded import SAMPLES

from rehearsal.aws.endpoint import AwsEndpoint
from tandem.cloudwatch_metrics import CLOUDWATCH_METRICS, GUARD, cloudwatch_unit
from tandem.guard.apply import run_reaper_pass
from tandem.guard.config import AwsClients
from tandem.guard.pass_metrics import METRIC_UNITS

SAMPLE = SAMPLES / f"{GUARD}.json"


@pytest.fixture(scope="module")
def sent():
    """Every PutMetricData of a pass, as it was passed to boto3."""
    asked_values: list[dict[str, Any]] = []
    with AwsEndpoint(account="666677778888", region="us-east-2", report=lambda _: None) as endpoint:
        endpoint.client("s3").create_bucket(
            Bucket="tandem-home", CreateBucketConfiguration={"LocationConstraint": "us-east-2"}
        )
        clients = AwsClients(
            **{
                service.name: endpoint.client(service.name)
                for service in fields(AwsClients)
                if service.default is MISSING
            }
        )
        clients.cloudwatch.meta.events.register(
            "provide-client-params.cloudwatch.PutMetricData",
            lambda params, **_: asked_values.append(params),
        )
        guarded_config = replace(GUARDED, bucket="tandem-home", topic_arn=None)
        run_reaper_pass(clients, guarded_config, datetime.now(UTC))
    return asked_values


def recording(asked: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept: of each metric its unit and its dimensions."""
    (only,) = asked
    return {
        "publisher": GUARD,
        "namespace": only["Namespace"],
        "metrics": [
            {
                "Name": metric_data["MetricName"],
                "Unit": metric_data["Unit"],
                "Dimensions": metric_data.get("Dimensions", []),
            }
            for metric_data in only["MetricData"]
        ],
    }


@pytest.mark.endpoint
@pytest.mark.xdist_group("watch-endpoint")
def test_a_pass_sends_what_is_recorded(sent):
    result = recording(sent)
    if os.environ.get("RECORD"):
        SAMPLE.write_text(json.dumps(result, indent=1) + "\n")

    def in_order(said: dict[str, Any]) -> dict[str, Any]:
        return {**said, "metrics": sorted(said["metrics"], key=lambda one: str(one["Name"]))}

    assert in_order(json.loads(SAMPLE.read_text())) == in_order(result)


def test_the_catalogue_knows_every_metric_of_the_guard_with_its_unit():
    known_by_name = {
        name: cloudwatch_unit(cloudwatch_metric)
        for (publisher, name), cloudwatch_metric in CLOUDWATCH_METRICS.items()
        if publisher == GUARD
    }
    assert known_by_name == METRIC_UNITS
