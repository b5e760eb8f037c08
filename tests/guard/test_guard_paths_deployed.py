"""The three paths of a Guard that the real CDK CLI deployed, each fired as AWS fires it, and each
with the others gone.

Nothing here calls a function: the endpoint's clock makes the reaper's rule and the one-shot
schedule due, and a message on the budget's own topic stands for the bill. Who is left is what EC2
lists. The clock of Lambda is this machine's, so that an instance is made old by saying that it was
launched long ago.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from twin_fleet import TwinFleet
from twin_looking import until

from rehearsal.aws.cdk_cli import CdkCli, read_stacks
from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.fleet_behavior import FleetBehavior
from rehearsal.aws.sandbox import (
    FICTITIOUS_ACCOUNT,
    EnvironmentSandbox,
    create_prerequisites,
    create_sandbox,
)
from tandem.cli.program import main
from tandem.declarations import names
from tandem.guard.pass_metrics import INSTANCES_ALIVE

pytestmark = [
    pytest.mark.cdk,
    pytest.mark.endpoint,
    pytest.mark.xdist_group("guard-paths"),
    pytest.mark.proof,
]

ROOT = Path(__file__).resolve().parents[2]
NAME = "post-us-east-2"
QUICK = {"start_delay_s": 0.1, "stop_delay_s": 0.1}
WAIT_S = 60.0  # a Lambda of the endpoint starts an interpreter
HOURS = 1.0
NODES = 2
OLD_S = 9 * 3600.0  # more than guard.max_hours


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    """On-demand capacity, of which a budget stops the fleet; deployed once, and kept as an
    endpoint's state."""
    home = tmp_path_factory.mktemp("paths")
    sandbox_copy = create_sandbox(NAME, ROOT / "environments", ROOT / "experiments", home)
    sandbox_copy.edit(
        lambda document: document["capacity"].update(
            kind="on-demand", reservation_id=None, nodes=NODES
        )
    )
    region = sandbox_copy.environment.region
    with AwsEndpoint(
        account=FICTITIOUS_ACCOUNT,
        region=region,
        state_dir=home / "deployed",
        report=lambda _: None,
    ) as endpoint:
        create_prerequisites(sandbox_copy, endpoint.client)
        cdk = CdkCli(endpoint=endpoint, sandbox=sandbox_copy, work_folder=home)
        cdk.bootstrap(sandbox_copy.environment.bootstrap.qualifier)
        cdk.deploy()
        there = {name.rpartition("-")[2] for name in read_stacks(endpoint, NAME)}
        assert there == set(sandbox_copy.stack_kinds)
    return sandbox_copy, home / "deployed"


@pytest.fixture
def guard(deployment, tmp_path, monkeypatch):
    """The deployed state once more, with a fleet that `tandem start` raised."""
    sandbox, state = deployment
    shutil.copytree(state, tmp_path / "state")
    region = sandbox.environment.region
    with AwsEndpoint(
        account=FICTITIOUS_ACCOUNT,
        region=region,
        state_dir=tmp_path / "state",
        report=lambda _: None,
    ) as endpoint:
        endpoint.set_fleet(FleetBehavior(**QUICK))
        for name, value in endpoint.client_environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        result = Guard(endpoint, sandbox)
        result.start()
        yield result


class Guard:
    """The deployed environment, its ways of being stopped, and what EC2 lists."""

    def __init__(self, endpoint: AwsEndpoint, sandbox: EnvironmentSandbox) -> None:
        self.endpoint = endpoint
        self.sandbox = sandbox
        self.place = sandbox.environment
        self.group = names.schedule_group_name(self.place)
        self.fleet = TwinFleet(
            endpoint, names.cluster_name(self.place), names.node_group_name(self.place)
        )

    def client(self, service: str) -> Any:
        return self.endpoint.client(service)

    def start(self) -> None:
        folders = [
            "--environments",
            str(self.sandbox.environments),
            "--experiments",
            str(self.sandbox.experiments),
        ]
        words = [
            "start",
            "--env",
            NAME,
            "--hours",
            str(HOURS),
            "--nodes",
            str(NODES),
            "--run",
            "r1",
            "--yes",
        ]
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*words, *folders]) == 0
        assert self.until(self.fleet.states, ["running"] * NODES) == ["running"] * NODES

    def until(self, look: Callable[[], Any], goal: Any) -> Any:
        return until(look, goal, WAIT_S)

    def pass_time(self, span: timedelta, **more: Any) -> None:
        """Put the endpoint's clock forward; what that makes due has been fired then."""
        self.endpoint.set_fleet(FleetBehavior(**QUICK, clock_offset_s=span.total_seconds(), **more))

    def schedules(self) -> list[str]:
        return [
            schedule["Name"]
            for schedule in self.client("scheduler").list_schedules(GroupName=self.group)[
                "Schedules"
            ]
        ]

    def functions(self) -> set[str]:
        mine = {names.guard_function_name(self.place, what) for what in ("stop", "reap")}
        return mine & {
            function["FunctionName"]
            for function in self.client("lambda").list_functions()["Functions"]
        }

    def rules(self) -> list[str]:
        result = self.client("events").list_rules()["Rules"]
        return [
            item["Name"] for item in result if item.get("ScheduleExpression") == "rate(5 minutes)"
        ]

    def budgets(self) -> list[str]:
        return [
            budget["BudgetName"]
            for budget in (
                self.client("budgets")
                .describe_budgets(AccountId=FICTITIOUS_ACCOUNT)
                .get("Budgets", [])
            )
        ]

    # what is taken away

    def without_one_shot(self) -> None:
        for name in self.schedules():
            self.client("scheduler").delete_schedule(GroupName=self.group, Name=name)
        assert self.schedules() == []

    def without_rule(self) -> None:
        for name in self.rules():
            self.client("events").remove_targets(Rule=name, Ids=["reap"])
            self.client("events").delete_rule(Name=name)
        assert self.rules() == []

    def without_function(self, what: Any) -> None:
        name = names.guard_function_name(self.place, what)
        self.client("lambda").delete_function(FunctionName=name)
        assert name not in self.functions()

    def without_budget(self) -> None:
        topic = self.stop_topic()
        self.client("budgets").delete_budget(
            AccountId=FICTITIOUS_ACCOUNT, BudgetName=names.budget_name(self.place)
        )
        self.client("sns").delete_topic(TopicArn=topic)
        assert self.budgets() == []

    def stop_topic(self) -> str:
        """The one that the deployed budget tells of what was really spent, at each threshold."""
        budgets = self.client("budgets")
        mine = {"AccountId": FICTITIOUS_ACCOUNT, "BudgetName": names.budget_name(self.place)}
        actual = [
            item
            for item in budgets.describe_notifications_for_budget(**mine)["Notifications"]
            if item["NotificationType"] == "ACTUAL"
        ]
        (topic,) = {
            str(subscriber["Address"])
            for notification in actual
            for subscriber in budgets.describe_subscribers_for_notification(
                **mine, Notification=notification
            )["Subscribers"]
        }
        return topic

    def passes(self) -> list[float]:
        """How many instances each pass of the reaper published."""
        now = self.endpoint.now()
        metric_statistics = self.client("cloudwatch").get_metric_statistics(
            Namespace=names.guard_namespace(self.place),
            MetricName=INSTANCES_ALIVE,
            Period=60,
            StartTime=now - timedelta(days=1),
            EndTime=now + timedelta(days=1),
            Statistics=["Maximum"],
        )
        return [point["Maximum"] for point in metric_statistics["Datapoints"]]


def test_the_rule_makes_the_reaper_look_and_the_one_shot_ends_the_lease(guard):
    guard.pass_time(timedelta(minutes=5, seconds=1))
    looked_until = guard.until(guard.passes, [float(NODES)])
    between = guard.fleet.states()

    guard.pass_time(timedelta(hours=HOURS, minutes=1))

    assert (looked_until, between) == ([float(NODES)], ["running"] * NODES)
    assert guard.until(guard.fleet.states, []) == []
    assert guard.schedules() == []


def test_the_one_shot_alone_ends_a_fleet(guard):
    guard.without_rule()
    guard.without_budget()
    for what in ("stop", "reap"):
        guard.without_function(what)

    guard.pass_time(timedelta(hours=HOURS, minutes=-1))
    before = guard.fleet.states()
    guard.pass_time(timedelta(hours=HOURS, minutes=1))

    assert before == ["running"] * NODES
    assert guard.until(guard.fleet.states, []) == []
    assert (guard.functions(), guard.rules(), guard.budgets()) == (set(), [], [])


def test_the_reaper_alone_ends_a_fleet_that_is_too_old(guard):
    guard.without_one_shot()
    guard.without_budget()
    guard.without_function("stop")

    guard.pass_time(timedelta(minutes=5, seconds=1), older_s=OLD_S)

    assert guard.until(guard.fleet.states, []) == []
    assert (guard.schedules(), guard.budgets()) == ([], [])
    assert guard.functions() == {names.guard_function_name(guard.place, "reap")}


def test_the_budget_alone_ends_a_fleet(guard):
    guard.without_one_shot()
    guard.without_rule()
    guard.without_function("reap")

    guard.client("sns").publish(
        TopicArn=guard.stop_topic(),
        Subject=f"AWS Budgets: {names.budget_name(guard.place)}",
        Message="the actual cost is above the budget",
    )

    assert guard.until(guard.fleet.states, []) == []
    assert (guard.schedules(), guard.rules()) == ([], [])
    assert guard.functions() == {names.guard_function_name(guard.place, "stop")}


def test_with_all_three_gone_nothing_ends_a_fleet(guard):
    """What the others prove is not the endpoint's own doing."""
    guard.without_one_shot()
    guard.without_rule()
    guard.without_budget()

    guard.pass_time(timedelta(hours=12), older_s=OLD_S)
    time.sleep(2)

    assert guard.fleet.states() == ["running"] * NODES
