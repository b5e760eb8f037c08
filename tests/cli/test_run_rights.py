"""Runs at an endpoint where policies bind: who sees them, who reads their logs, who asks for
one."""

from __future__ import annotations

import boto3
import pytest
from run_records import (
    RUN,
    VERDICT,
    answering,
    fill_bucket,
    list_keys,
    make_record,
    make_request,
    make_step,
    put_beat,
    put_run,
    put_value,
    tandem,
)
from test_people_commands import asked, become, front, own_fleet, wanted

from tandem.declarations import names
from tandem.run.round_records import VERDICT_TEXT
from tandem.run.run_keys import results_prefix

__all__ = ["become", "front", "own_fleet"]

pytestmark = pytest.mark.endpoint
COMMANDS = {
    "runs": "runs",
    f"runs show {RUN}": "runs show",
    f"runs follow {RUN}": "runs follow",
    f"runs logs {RUN}": "runs logs",
    f"results {RUN}": "results",
}
ASK = ("--hours", "6", "--yes", "--run", "mine", "--detach")


def put_judged_run(fleet):
    """Leave a run that was judged, and a runner that lives."""
    put_run(
        fleet, make_record(fleet, state="judged", verdict=VERDICT), (make_step(0, "preflight"),)
    )
    put_value(fleet, results_prefix("post", RUN) + VERDICT_TEXT, f"{VERDICT}\n".encode())
    put_beat(fleet)
    fill_bucket(fleet)


@pytest.fixture
def fleet_with_run(own_fleet):
    """A run that was judged, where policies bind."""
    put_judged_run(own_fleet)
    return own_fleet


def test_a_viewer_sees_runs_but_no_logs_and_results(fleet_with_run, become, capsys):
    become("viewer")
    assert [tandem(fleet_with_run, command) for command in COMMANDS] == [0, 0, 0, 3, 3]
    assert capsys.readouterr().err.count("it takes the rights of engineer") == 2


def test_an_engineer_brings_results(fleet_with_run, become, capsys):
    become("engineer")
    assert tandem(fleet_with_run, f"results {RUN}") == 0
    assert VERDICT in capsys.readouterr().out


def test_an_operator_asks_below_the_own_id(fleet_with_run, become, front):
    become("operator")
    user = (
        boto3.session.Session()
        .client("sts", region_name=fleet_with_run.environment.region)
        .get_caller_identity()["UserId"]
    )
    with answering(fleet_with_run):
        assert tandem(fleet_with_run, "run post", *ASK) == 0
    assert list_keys(fleet_with_run, "requests/") == [
        f"requests/{user}/mine.answer.json",
        f"requests/{user}/mine.json",
    ]
    # a block, a lease that stands and a silent reaper are asked more; the proxy names no version of
    # a listing
    seldom = {"DescribeCapacityReservations", "GetSchedule", "GetFunctionConfiguration"}
    # nor are a key of its own, another answer of the quotas, and subscriptions of this fixture
    seldom |= {"DescribeKey", "ListAWSDefaultServiceQuotas", "ListSubscriptionsByTopic"}
    # nor is a file of prompts, which this experiment does not ask
    seldom |= {"HeadObject"}
    # nor is the end of a block, which this fixture does not have
    seldom |= {"DescribeCapacityBlockExtensionHistory", "DescribeScheduledActions"}
    calls = {
        "ListObjectsV2" if operation == "ListObjects" else operation for operation in asked(front)
    }
    assert calls | seldom == wanted("run")


@pytest.fixture
def staging(own_fleet):
    """A runner that lives, a bucket without a model, and a run at work that stages."""
    put_beat(own_fleet)
    put_run(
        own_fleet, make_record(own_fleet, request=make_request(until="stage", hours=0), leases=())
    )
    return own_fleet


def test_an_engineer_stages_and_cancels_below_the_own_id(staging, become, front):
    become("engineer")
    user = (
        boto3.session.Session()
        .client("sts", region_name=staging.environment.region)
        .get_caller_identity()["UserId"]
    )
    with answering(staging):
        assert (
            tandem(staging, "run post", "--until", "stage", "--yes", "--run", "mine", "--detach")
            == 0
        )
        calls = {
            "ListObjectsV2" if operation == "ListObjects" else operation
            for operation in asked(front)
        }
        assert tandem(staging, f"runs cancel {RUN}", "--yes") == 0

    keys = list_keys(staging, "stage-requests/")
    assert {key.rpartition("/")[0] for key in keys} == {f"stage-requests/{user}"}
    assert [key.rpartition("/")[2].partition(".")[0] for key in keys] == ["mine", "mine", RUN, RUN]
    assert list_keys(staging, "requests/") == []
    # this fixture's bucket has no key of its own
    assert calls | {"DescribeKey"} == wanted("run --until stage")


def test_a_viewer_may_not_stage_and_is_told_who_may(staging, become, capsys):
    become("viewer")
    assert (
        tandem(staging, "run post", "--until", "stage", "--yes", "--run", "mine", "--detach") == 3
    )
    assert list_keys(staging, "stage-requests/") == []
    assert "engineer" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["viewer", "engineer"])
def test_who_may_not_run_is_told_who_may(kind, fleet_with_run, become, capsys):
    become(kind)
    codes = [
        tandem(fleet_with_run, "run post", *ASK),
        tandem(fleet_with_run, f"runs cancel {RUN}", "--yes"),
    ]
    assert (codes, list_keys(fleet_with_run, "requests/")) == ([3, 3], [])
    err = capsys.readouterr().err
    assert names.people_policy_name(fleet_with_run.environment, "operator") in err
