"""What commands ask of the bucket about runs, at the local endpoint."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule
from run_records import (
    RUN,
    START,
    list_keys,
    make_record,
    make_request,
    make_step,
    moment,
    put_run,
    put_value,
    read_request,
)

from tandem.declarations import names
from tandem.errors import ExternalError, InputError
from tandem.ops.faults import AccessDeniedError
from tandem.run.jobs import name_job
from tandem.run.run_client import RunClient
from tandem.run.run_keys import RUNNER_KEY, run_record_key, step_key

pytestmark = pytest.mark.endpoint
HOUR = timedelta(hours=1)


@pytest.fixture
def client(fleet):
    """Somebody who may do all."""
    return RunClient(fleet.environment)


def test_a_request_lies_below_the_callers_own_id(client, fleet):
    user_id = fleet.client("sts").get_caller_identity()["UserId"]
    key = client.write_request(make_request(), RUN)
    assert read_request(fleet) == (key, make_request())
    assert key == f"requests/{user_id}/{RUN}.json"


def test_a_request_is_written_only_where_none_is(client, fleet, proxy):
    proxy.forget()
    key = client.write_request(make_request(), RUN)
    (call,) = [row for row in proxy.log if row.operation == "PutObject"]
    assert {name.lower(): text for name, text in call.headers.items()}["if-none-match"] == "*"

    with pytest.raises(InputError, match=f"tandem runs show {RUN} --env {fleet.name}"):
        RunClient(fleet.environment).write_request(make_request(hours=2), RUN)
    assert fleet.get(key)["hours"] == 6


def test_too_large_a_request_is_not_written(client, fleet):
    with pytest.raises(InputError, match="larger than 64 KiB"):
        client.write_request(make_request(experiment="x" * 65_000), RUN)
    assert list_keys(fleet, "requests/") == []


def test_runs_are_listed_newest_first(client, fleet):
    for number, run in enumerate(("b", "c", "a")):
        put_run(fleet, make_record(fleet, run, started_at=moment(number)))
    fleet.put("runs/by-hand/lease.json", {"run": "by-hand"})
    fleet.put("runs/b.2/lease.json", {"run": "b.2"})
    records, unread = client.list_runs()
    assert ([record.run for record in records], unread) == (["a", "c", "b"], {})


@pytest.mark.parametrize("body", [b"{", b'{"schema": 1}', b"\xff\xfe"])
def test_an_object_that_is_not_understood_is_a_sentence(body, client, fleet):
    put_run(fleet, make_record(fleet, "good"))
    for key in (run_record_key(RUN), step_key("good", 0, "stage"), RUNNER_KEY):
        put_value(fleet, key, body)
    for read in (client.read_beat, lambda: client.read_run(RUN), lambda: client.read_steps("good")):
        with pytest.raises(ExternalError, match="it cannot be parsed"):
            read()
    records, unread = client.list_runs()
    assert ([record.run for record in records], list(unread)) == (["good"], [RUN])


def test_an_object_of_another_schema_is_refused_with_both(client, fleet):
    put_value(fleet, run_record_key(RUN), b'{"schema": 2}')
    with pytest.raises(
        ExternalError, match="it has schema 2; this version of Tandem reads schema 1"
    ):
        client.read_run(RUN)


def test_an_unknown_run_is_refused_with_the_listing_command(client, fleet):
    with pytest.raises(InputError, match=f"tandem runs --env {fleet.name}"):
        client.read_run("none-such")


def test_steps_that_have_ended_are_read_once(client, fleet, proxy):
    put_run(
        fleet, make_record(fleet), (make_step(0, "preflight"), make_step(1, "stage", "running"))
    )
    first = client.read_steps(RUN)
    put_value(fleet, step_key(RUN, 1, "stage"), make_step(1, "stage", note="2 models"))
    put_value(fleet, step_key(RUN, 2, "raise"), make_step(2, "raise", "running"))
    proxy.forget()
    second = client.read_steps(RUN)
    assert [step.step for step in first] == ["preflight", "stage"]
    assert [(step.step, step.note) for step in second] == [
        ("preflight", ""),
        ("stage", "2 models"),
        ("raise", ""),
    ]
    assert [row.operation for row in proxy.log].count("GetObject") == 2


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        ("viewer", lambda client: client.read_run(RUN)),
        ("operator", lambda client: client.write_request(make_request(), RUN)),
        ("engineer", lambda client: client.read_pod_logs(RUN, START, START, None)),
    ],
)
def test_a_denial_names_the_kind_of_people_that_may(kind, ask, client, fleet, proxy):
    operations = ("GetObject", "PutObject", "ListObjects*", "FilterLogEvents")
    proxy.use(*(FaultRule(operation=name, fault=ACCESS_DENIED_FAULT) for name in operations))
    with pytest.raises(AccessDeniedError, match=f"the rights of {kind}") as raised_error:
        ask(client)
    assert names.people_policy_name(fleet.environment, kind) in raised_error.value.change


def put_events(fleet, *rows, at=START):
    """Send lines as Fluent Bit does: pod and text of each."""
    group = names.container_log_group_name(fleet.environment, "application")
    logs = fleet.client("logs")
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="node-1")
    messages = [
        (
            row
            if isinstance(row, str)
            else json.dumps({"log": f"{row[1]}\n", "kubernetes": {"pod_name": row[0]}})
        )
        for row in rows
    ]
    stamp = int(at.timestamp() * 1000)
    events = [{"timestamp": stamp + index, "message": text} for index, text in enumerate(messages)]
    logs.put_log_events(logGroupName=group, logStreamName="node-1", logEvents=events)


def test_cloudwatch_has_the_lines_of_this_runs_pods_alone(client, fleet):
    now = datetime.now(UTC)
    mine = f"{name_job(RUN, 'stage-x', 1)}-abcde"
    foreign = f"{name_job('other', 'stage-x', 1)}-abcde"
    put_events(
        fleet,
        (mine, "65 GB"),
        (foreign, "not mine"),
        "no JSON",
        '{"log": 1}',
        (mine, "done"),
        at=now,
    )
    lines = client.read_pod_logs(RUN, now - HOUR, now + HOUR, None)
    assert [(line.pod, line.text) for line in lines] == [(mine, "65 GB"), (mine, "done")]
    assert abs(lines[0].at - now) < timedelta(seconds=1)


def test_cloudwatch_has_the_lines_of_a_steps_jobs_alone(client, fleet):
    now = datetime.now(UTC)
    job = name_job(RUN, "stage-x", 1)
    put_events(
        fleet, (f"{job}-abcde", "65 GB"), (f"{name_job(RUN, 'stage-x', 11)}-abcde", "not"), at=now
    )

    lines = client.read_pod_logs(RUN, now - HOUR, now + HOUR, {job})

    assert [line.text for line in lines] == ["65 GB"]
