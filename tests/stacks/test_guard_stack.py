"""Guard: what its functions hold and may do, who is notified, and what replaces a budget."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from assemblies import (
    COMMITTED,
    Template,
    changed,
    environment,
    one,
    resources,
    synth_alone,
)

from stacks.guard import GuardStack
from stacks.guard_functions import (
    FUNCTIONS,
    function_variables,
    list_function_files,
)
from stacks.stack import ROOT
from tandem.declarations.environment import AlarmSubscription, CapacityBlock
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_start import build_stop_schedule
from tandem.guard.lease import Lease
from tandem.ops.guard_config import build_guard_config

pytestmark = pytest.mark.cdk

HOME = "post-us-east-2"
ACCOUNT = "111122223333"
REGION = "us-east-2"
# what people alone call, by modules that the functions have too
CALLS_OF_PEOPLE = {"autoscaling:ResumeProcesses", "scheduler:DeleteSchedule"}
# without a call of its own: a missing object is told from a forbidden one; the topic's key; the
# function's log
RIGHTS_WITHOUT_CALL = {
    "s3:ListBucket",
    "kms:Decrypt",
    "kms:GenerateDataKey",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
}
each_function = pytest.mark.parametrize("kind", FUNCTIONS)


@pytest.fixture(scope="session")
def stack(stacks):
    return stacks[f"{HOME}-Guard"]


def find_function(stack: Template, kind: str, environment_name: str = HOME) -> Template:
    (properties,) = resources(
        stack, "AWS::Lambda::Function", FunctionName=f"tandem-{environment_name}-{kind}"
    )
    return properties


def find_asset(assembly: Path, stack: Template, kind: str) -> Path:
    """Return the folder of a function's asset."""
    key = find_function(stack, kind)["Code"]["S3Key"].removesuffix(".zip")
    (folder,) = assembly.glob(f"**/asset.{key}")
    return folder


def find_role(stack: Template, start: str) -> Template:
    """Return the properties of the one role whose logical id begins so."""
    (properties,) = [
        resource["Properties"]
        for name, resource in stack["Resources"].items()
        if resource["Type"] == "AWS::IAM::Role" and name.startswith(start)
    ]
    return properties


def list_resources_by_action(role: Template) -> dict[str, list[str]]:
    (policy,) = role["Policies"]
    return {
        action: statement["Resource"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in statement["Action"]
    }


@each_function
def test_packed_handler_loads_where_there_is_nothing_else(assembly, stack, kind, tmp_path):
    folder = find_asset(assembly, stack, kind)
    archive_path = tmp_path / "code.zip"
    with zipfile.ZipFile(archive_path, "w") as archive:
        for path in folder.rglob("*.py"):
            archive.write(path, path.relative_to(folder))
    module, _, name = find_function(stack, kind)["Handler"].partition(".")
    code = f"import sys; sys.path[:0] = [{str(archive_path)!r}]; from {module} import {name}"

    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ""},
    )

    assert (result.returncode, result.stderr) == (0, "")


@each_function
@pytest.mark.parametrize("name", COMMITTED)
def test_variables_say_what_the_file_declares(stacks, name, kind):
    properties = find_function(stacks[f"{name}-Guard"], kind, name)
    config = GuardConfig.from_variables(properties["Environment"]["Variables"])
    declared_config = build_guard_config(environment(name))
    assert config == replace(declared_config, block_starts=None, block_ends=None)


def test_no_variable_holds_a_reservation_or_a_blocks_hours():
    starts = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
    block = CapacityBlock.model_construct(starts=starts, ends=starts + timedelta(days=1))
    capacity = {"reservation_id": "cr-0123456789abcdef0", "block": block}
    place = changed(environment(HOME), capacity=capacity)
    assert function_variables(place) == function_variables(environment(HOME))


@pytest.mark.parametrize(
    ("role", "more"), [("Reap", set()), ("Stop", {"sqs:SendMessage"})], ids=FUNCTIONS[::-1]
)
def test_function_may_call_what_its_files_call(stack, role, more):
    source = "".join((ROOT / file).read_text() for file in list_function_files("reap"))
    services = [field.name for field in fields(AwsClients) if field.default is MISSING]
    calls = {action for service in services for action in list_calls(source, service)}

    allowed_resources_by_action = set(list_resources_by_action(find_role(stack, role)))

    assert allowed_resources_by_action == calls - CALLS_OF_PEOPLE | RIGHTS_WITHOUT_CALL | more


def test_in_a_bucket_of_others_a_function_fences_below_its_prefix(stacks):
    rights = list_resources_by_action(find_role(stacks["spot-unprotected-Guard"], "Reap"))
    prefix = f"arn:aws:s3:::their-models/guard/{ACCOUNT}/{REGION}/spot-unprotected/"
    assert rights["s3:PutObject"] == [f"{prefix}stop.json"]
    assert {arn.startswith(prefix) for arn in rights["s3:GetObject"]} == {True}


def test_functions_alone_publish_into_the_guards_namespace(stacks):
    """Whoever may publish `instances_alive` can feign a reaper that lives."""
    publishers = {
        (name, logical_id[:4]): json.dumps(statement)
        for name, template in stacks.items()
        for logical_id, resource in template["Resources"].items()
        for policy in resource.get("Properties", {}).get("Policies", [])
        for statement in policy["PolicyDocument"]["Statement"]
        if "cloudwatch:PutMetricData" in statement["Action"]
    }

    assert all("cloudwatch:namespace" in text for text in publishers.values())
    of_the_guard = {key for key, text in publishers.items() if f"Tandem/Guard/{HOME}" in text}
    assert of_the_guard == {(f"{HOME}-Guard", "Stop"), (f"{HOME}-Guard", "Reap")}


def list_calls(source: str, service: str) -> set[str]:
    """Return the IAM actions of the calls that a source makes of a service."""
    operations = re.findall(rf"clients\.{service}(?:_once\.|\.|, \")(\w+)\b", source)
    return {f"{service}:{operation.title().replace('_', '')}" for operation in operations}


def test_start_names_the_group_role_and_queue_that_are_made(stack):
    now = datetime(2026, 12, 1, 8, tzinfo=UTC)
    lease = Lease(
        run="r",
        who="w",
        experiment=None,
        node_label={},
        nodes=1,
        created=now,
        deadline=now + timedelta(hours=1),
        beats=False,
        schedule="stop-r",
    )

    schedule = build_stop_schedule(build_guard_config(environment(HOME)), lease)

    role = find_role(stack, "OneShotRole")["RoleName"]
    queue = one(stack, "AWS::SQS::Queue")["QueueName"]
    assert schedule["GroupName"] == one(stack, "AWS::Scheduler::ScheduleGroup")["Name"]
    assert schedule["Target"]["RoleArn"] == f"arn:aws:iam::{ACCOUNT}:role/{role}"
    assert schedule["Target"]["DeadLetterConfig"]["Arn"].endswith(f":{queue}")


def test_subscriber_keeps_its_resource_wherever_it_stands(tmp_path):
    mail = AlarmSubscription(protocol="email", endpoint="ops@example.com")
    queue = AlarmSubscription(protocol="sqs", endpoint="arn:aws:sqs:us-east-2:111122223333:alarms")

    def subscribe(folder: str, *subscribers: AlarmSubscription) -> dict[str, Any]:
        place = changed(environment(HOME), observability={"alarm_subscriptions": subscribers})
        template = synth_alone(place, tmp_path / folder, GuardStack, environment=place)
        return {
            name: resource["Properties"]
            for name, resource in template["Resources"].items()
            if resource.get("Properties", {}).get("Protocol") in {"email", "sqs"}
        }

    subscriptions = subscribe("both", mail, queue)
    assert len(subscriptions) == 2
    assert subscribe("queue", queue).items() < subscriptions.items()


def test_another_list_of_notifications_has_another_name(stack):
    """CloudFormation cannot replace a budget under its own name: add a line here, and keep the
    others."""
    names = {
        "": "ACTUAL 100, FORECASTED 100",
        "-monthly": ("ACTUAL 100, ACTUAL 125, ACTUAL 150, ACTUAL 200, ACTUAL 300, FORECASTED 100"),
    }
    budget = one(stack, "AWS::Budgets::Budget")
    notifications = [row["Notification"] for row in budget["NotificationsWithSubscribers"]]
    thresholds = ", ".join(
        f"{row['NotificationType']} {row['Threshold']:g}" for row in notifications
    )
    name = budget["Budget"]["BudgetName"].removeprefix(f"tandem-{HOME}")
    assert names[name] == thresholds


def test_without_tags_of_ones_own_it_counts_this_environments_instances_alone(tmp_path):
    place = changed(environment(HOME), tags={})
    template = synth_alone(place, tmp_path, GuardStack, environment=place)
    assert one(template, "AWS::Budgets::Budget")["Budget"]["CostFilters"] == {
        "TagKeyValue": [f"user:tandem:environment${HOME}"],
        "UsageType": ["USE2-BoxUsage:trn2.48xlarge", "USE2-SpotUsage:trn2.48xlarge"],
    }
