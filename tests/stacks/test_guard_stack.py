"""Guard: what stops the fleet, with exact rights; who is told; and that nothing of a run changes
it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from assemblies import (
    COMMITTED,
    Template,
    Templates,
    changed,
    environment,
    one,
    resources,
    synth_alone,
)

from stacks.guard import GuardStack
from stacks.guard_functions import FUNCTIONS, function_variables, list_function_files
from stacks.stack import ROOT
from tandem.declarations.budgets import REGIONS_WITHOUT_BUDGETS
from tandem.declarations.environment import AlarmSubscription, CapacityBlock
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_start import build_stop_schedule
from tandem.guard.lease import Lease
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.ops.guard_config import build_guard_config

pytestmark = pytest.mark.cdk

HOME = "post-us-east-2"
ACCOUNT = "111122223333"
REGION = "us-east-2"
BUCKET = f"arn:aws:s3:::tandem-{HOME}-{ACCOUNT}"
NODE_GROUP = f"arn:aws:eks:{REGION}:{ACCOUNT}:nodegroup/tandem-{HOME}/{HOME}-trn2/*"
TLS_ONLY = {"Bool": {"aws:SecureTransport": "false"}}


@pytest.fixture(scope="session")
def stack(stacks: Templates) -> Template:
    return stacks[f"{HOME}-Guard"]


def function(stack: Template, what: str) -> Template:
    (found,) = resources(stack, "AWS::Lambda::Function", FunctionName=f"tandem-{HOME}-{what}")
    return found


def logical(stack: Template, start: str, type_: str) -> str:
    """Return the logical id of the one resource of a type whose id begins so."""
    (found,) = [
        name
        for name, each in stack["Resources"].items()
        if each["Type"] == type_ and name.startswith(start)
    ]
    return found


def rights(stack: Template, start: str) -> list[dict[str, Any]]:
    """Return the statements of the role whose logical id begins so."""
    (policy,) = stack["Resources"][logical(stack, start, "AWS::IAM::Role")]["Properties"][
        "Policies"
    ]
    found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
    return found


def policies(properties: Template) -> list[Template]:
    """Return the policy documents of a role or a managed policy."""
    own = [properties["PolicyDocument"]] if "ManagedPolicyName" in properties else []
    return [*own, *(policy["PolicyDocument"] for policy in properties.get("Policies", []))]


def allowed(statements: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return action -> its statement; an action stands in one."""
    found: dict[str, dict[str, Any]] = {}
    for statement in statements:
        for action in statement["Action"]:
            assert action not in found or action.startswith("kms:")
            found[action] = statement
    return found


class TestFunctions:
    @pytest.mark.parametrize("what", FUNCTIONS)
    def test_a_functions_asset_holds_what_its_list_says_and_nothing_else(
        self, assembly: Path, what: str
    ) -> None:
        template = next(iter((assembly / f"assembly-{HOME}").glob("*Guard*.template.json")))
        key = function(json.loads(template.read_text()), what)["Code"]["S3Key"].removesuffix(".zip")
        (folder,) = assembly.glob(f"**/asset.{key}")

        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        listed = (ROOT / "lambdas" / what / "files.txt").read_text().split()
        assert found == {name.removeprefix(f"lambdas/{what}/") for name in listed}
        for file in found:
            source = ROOT / ("lambdas/" + what + "/handler.py" if file == "handler.py" else file)
            assert (folder / file).read_bytes() == source.read_bytes()
        assert len(list_function_files(what)) == len(found)  # type: ignore[arg-type]  # a parameter

    @pytest.mark.parametrize("what", FUNCTIONS)
    def test_the_packed_handler_loads_where_there_is_nothing_else(
        self, assembly: Path, stack: Template, what: str, tmp_path: Path
    ) -> None:
        key = function(stack, what)["Code"]["S3Key"].removesuffix(".zip")
        (folder,) = assembly.glob(f"**/asset.{key}")
        packed = tmp_path / "code.zip"
        with zipfile.ZipFile(packed, "w") as archive:
            for path in folder.rglob("*.py"):
                archive.write(path, path.relative_to(folder))
        code = (
            f"import sys; sys.path[:0] = [{str(packed)!r}]; import handler;"
            " print(handler.handler.__name__)"
        )

        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": ""},
        )

        assert (done.stdout, done.stderr) == ("handler\n", "")
        assert function(stack, what)["Handler"] == "handler.handler"

    @pytest.mark.parametrize("name", COMMITTED)
    @pytest.mark.parametrize("what", FUNCTIONS)
    def test_a_function_is_told_what_the_declared_file_says(
        self, stacks: Templates, name: str, what: str
    ) -> None:
        functions = stacks[f"{name}-Guard"]
        (found,) = resources(
            functions, "AWS::Lambda::Function", FunctionName=f"tandem-{name}-{what}"
        )

        told = GuardConfig.from_variables(found["Environment"]["Variables"])
        meant = build_guard_config(environment(name))
        assert (told.cluster, told.node_group, told.bucket) == (
            meant.cluster,
            meant.node_group,
            meant.bucket,
        )
        assert (told.topic_arn, told.namespace, told.capacity_kind) == (
            meant.topic_arn,
            meant.namespace,
            meant.capacity_kind,
        )
        assert (told.max_hours, told.idle_minutes) == (meant.max_hours, meant.idle_minutes)

    def test_no_function_is_told_of_a_reservation_or_of_a_blocks_hours(self) -> None:
        starts = datetime(2026, 12, 1, 11, 30, tzinfo=UTC)
        block = CapacityBlock.model_construct(starts=starts, ends=starts + timedelta(days=1))
        place = changed(
            environment(HOME), capacity={"reservation_id": "cr-0123456789abcdef0", "block": block}
        )

        assert build_guard_config(place).block_ends == block.ends
        assert function_variables(place) == function_variables(environment(HOME))

    def test_the_reaper_looks_every_pass_and_nobody_else_calls_it(self, stack: Template) -> None:
        rule = one(stack, "AWS::Events::Rule")
        (target,) = rule["Targets"]
        reap = logical(stack, "ReapFunction", "AWS::Lambda::Function")
        callers = resources(
            stack, "AWS::Lambda::Permission", FunctionName={"Fn::GetAtt": [reap, "Arn"]}
        )

        assert (rule["ScheduleExpression"], rule["State"]) == (
            f"rate({PASS_MINUTES} minutes)",
            "ENABLED",
        )
        assert target["Arn"] == {"Fn::GetAtt": [reap, "Arn"]}
        rule_arn = {"Fn::GetAtt": [logical(stack, "EveryPassRule", "AWS::Events::Rule"), "Arn"]}
        assert [(each["Principal"], each["SourceArn"]) for each in callers] == [
            ("events.amazonaws.com", rule_arn)
        ]

    def test_a_stop_that_failed_on_every_try_is_kept_and_a_pass_is_not(
        self, stack: Template
    ) -> None:
        calls = {
            json.dumps(each["FunctionName"]): each
            for each in resources(stack, "AWS::Lambda::EventInvokeConfig")
        }
        stop = calls[json.dumps({"Ref": logical(stack, "StopFunction", "AWS::Lambda::Function")})]
        reap = calls[json.dumps({"Ref": logical(stack, "ReapFunction", "AWS::Lambda::Function")})]

        queue = {"Fn::GetAtt": [logical(stack, "DeadLetters", "AWS::SQS::Queue"), "Arn"]}
        assert stop["DestinationConfig"] == {"OnFailure": {"Destination": queue}}
        assert (stop["MaximumRetryAttempts"], reap["MaximumRetryAttempts"]) == (2, 0)
        assert "DestinationConfig" not in reap


class TestRights:
    """Action by action: what a role may is what tandem/guard calls."""

    CALLED = frozenset(
        {
            "s3:GetObject",
            "s3:PutObject",
            "eks:DescribeNodegroup",
            "eks:UpdateNodegroupConfig",
            "ec2:DescribeInstances",
            "ec2:DescribeCapacityReservations",
            "ec2:TerminateInstances",
            "cloudwatch:PutMetricData",
            "cloudwatch:GetMetricStatistics",
            "sns:Publish",
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:SuspendProcesses",
            "autoscaling:UpdateAutoScalingGroup",
            "scheduler:ListSchedules",
        }
    )
    # what people alone call, by modules that the functions have too
    PEOPLE = frozenset({"autoscaling:ResumeProcesses", "scheduler:DeleteSchedule"})
    # without a call of its own: a missing object is told from a forbidden one; the topic's key; the
    # function's log
    BESIDE = frozenset(
        {
            "s3:ListBucket",
            "kms:Decrypt",
            "kms:GenerateDataKey",
            "logs:CreateLogStream",
            "logs:PutLogEvents",
        }
    )

    def test_the_functions_may_call_what_the_stop_calls_and_nothing_else(
        self, stack: Template
    ) -> None:
        assert set(allowed(rights(stack, "Reap"))) == self.CALLED | self.BESIDE
        assert set(allowed(rights(stack, "Stop"))) == self.CALLED | self.BESIDE | {
            "sqs:SendMessage"
        }

    def test_every_call_of_the_stop_is_among_them(self) -> None:
        source = "".join((ROOT / file).read_text() for file in list_function_files("reap"))
        made = {
            f"{service}:{''.join(part.capitalize() for part in operation.split('_'))}"
            for service in [each.name for each in fields(AwsClients) if each.default is MISSING]
            for operation in _called(source, service)
        }

        assert made - self.PEOPLE == self.CALLED

    def test_a_function_sizes_this_node_group_alone(self, stack: Template) -> None:
        for what in ("Stop", "Reap"):
            found = allowed(rights(stack, what))
            assert found["eks:UpdateNodegroupConfig"]["Resource"] == [NODE_GROUP]
            assert found["eks:DescribeNodegroup"]["Resource"] == [NODE_GROUP]

    def test_a_function_ends_instances_of_this_node_group_alone(self, stack: Template) -> None:
        statement = allowed(rights(stack, "Reap"))["ec2:TerminateInstances"]

        assert statement["Resource"] == [f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/*"]
        assert statement["Condition"] == {
            "StringEquals": {
                "aws:ResourceTag/eks:cluster-name": f"tandem-{HOME}",
                "aws:ResourceTag/eks:nodegroup-name": f"{HOME}-trn2",
            }
        }

    def test_in_a_bucket_of_others_a_function_reads_and_fences_below_its_prefix(
        self, stacks: Templates
    ) -> None:
        found = allowed(rights(stacks["existing-bucket-Guard"], "Reap"))
        start = f"arn:aws:s3:::their-models/guard/{ACCOUNT}/{REGION}/existing-bucket/"

        assert found["s3:PutObject"]["Resource"] == [f"{start}stop.json"]
        assert found["s3:GetObject"]["Resource"] == [
            f"{start}{key}"
            for key in ("stop.json", "lease.json", "runs/*/lease.json", "runs/*/heartbeat.json")
        ]

    def test_a_function_puts_metrics_into_the_guards_namespace_alone(self, stack: Template) -> None:
        for what in ("Stop", "Reap"):
            statement = allowed(rights(stack, what))["cloudwatch:PutMetricData"]
            assert statement["Condition"] == {
                "StringEquals": {"cloudwatch:namespace": f"Tandem/Guard/{HOME}"}
            }

    def test_nobody_but_the_functions_puts_into_the_guards_namespace(
        self, stacks: Templates
    ) -> None:
        """Whoever may publish `instances_alive` can feign a reaper that lives."""
        spaces = {
            (logical_id, json.dumps(statement.get("Condition")))
            for name, template in stacks.items()
            if name.startswith(HOME)
            for logical_id, resource in template["Resources"].items()
            for document in policies(resource["Properties"])
            for statement in document["Statement"]
            if "cloudwatch:PutMetricData" in statement["Action"]
        }

        assert all("cloudwatch:namespace" in condition for _, condition in spaces)
        guards = {
            logical_id for logical_id, condition in spaces if f"Tandem/Guard/{HOME}" in condition
        }
        stack = stacks[f"{HOME}-Guard"]
        assert guards == {logical(stack, what, "AWS::IAM::Role") for what in ("Stop", "Reap")}


def _called(source: str, service: str) -> set[str]:
    return set(re.findall(rf"clients\.{service}(?:_once\.|\.|, \")(\w+)\b", source))


class TestOneShot:
    def test_scheduler_alone_has_the_role_for_this_group_alone(self, stack: Template) -> None:
        role = stack["Resources"][logical(stack, "OneShotRole", "AWS::IAM::Role")]["Properties"]
        (trust,) = role["AssumeRolePolicyDocument"]["Statement"]

        assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
        assert trust["Condition"] == {
            "StringEquals": {
                "aws:SourceAccount": ACCOUNT,
                "aws:SourceArn": (
                    f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule-group/tandem-{HOME}"
                ),
            }
        }

    def test_the_role_sizes_this_node_group_and_says_that_it_could_not(
        self, stack: Template
    ) -> None:
        found = allowed(rights(stack, "OneShotRole"))
        queue = {"Fn::GetAtt": [logical(stack, "DeadLetters", "AWS::SQS::Queue"), "Arn"]}

        assert set(found) == {
            "eks:UpdateNodegroupConfig",
            "sqs:SendMessage",
            "kms:Decrypt",
            "kms:GenerateDataKey",
        }
        assert found["eks:UpdateNodegroupConfig"]["Resource"] == [NODE_GROUP]
        assert found["sqs:SendMessage"]["Resource"] == [queue]

    def test_a_start_names_the_group_the_role_and_the_queue_that_are_made(
        self, stack: Template
    ) -> None:
        meant = build_guard_config(environment(HOME))
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

        asked = build_stop_schedule(meant, lease)

        role = stack["Resources"][logical(stack, "OneShotRole", "AWS::IAM::Role")]["Properties"][
            "RoleName"
        ]
        assert asked["GroupName"] == one(stack, "AWS::Scheduler::ScheduleGroup")["Name"]
        assert asked["Target"]["RoleArn"] == f"arn:aws:iam::{ACCOUNT}:role/{role}"
        queue = one(stack, "AWS::SQS::Queue")["QueueName"]
        assert asked["Target"]["DeadLetterConfig"] == {
            "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"
        }

    def test_the_queue_is_encrypted_and_speaks_tls_only(self, stack: Template) -> None:
        queue = one(stack, "AWS::SQS::Queue")
        (denied,) = one(stack, "AWS::SQS::QueuePolicy")["PolicyDocument"]["Statement"]

        assert queue["KmsMasterKeyId"] == {
            "Fn::GetAtt": [logical(stack, "Key", "AWS::KMS::Key"), "Arn"]
        }
        assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600
        assert (denied["Effect"], denied["Principal"], denied["Condition"]) == (
            "Deny",
            {"AWS": "*"},
            TLS_ONLY,
        )


class TestNotices:
    def statements(self, stack: Template, start: str) -> list[dict[str, Any]]:
        topic = {"Ref": logical(stack, start, "AWS::SNS::Topic")}
        (policy,) = resources(stack, "AWS::SNS::TopicPolicy", Topics=[topic])
        found: list[dict[str, Any]] = policy["PolicyDocument"]["Statement"]
        return found

    def test_alarms_of_this_environment_and_budgets_of_this_account_tell_people(
        self, stack: Template
    ) -> None:
        found = {
            each["Principal"]["Service"]: each
            for each in self.statements(stack, "Notices")
            if each["Effect"] == "Allow"
        }

        assert set(found) == {"cloudwatch.amazonaws.com", "budgets.amazonaws.com"}
        assert found["cloudwatch.amazonaws.com"]["Condition"] == {
            "StringEquals": {"aws:SourceAccount": ACCOUNT},
            "ArnLike": {
                "aws:SourceArn": f"arn:aws:cloudwatch:{REGION}:{ACCOUNT}:alarm:{HOME}-notify-*"
            },
        }
        assert found["budgets.amazonaws.com"]["Condition"] == {
            "StringEquals": {"aws:SourceAccount": ACCOUNT},
            "ArnLike": {"aws:SourceArn": f"arn:aws:budgets::{ACCOUNT}:*"},
        }

    def test_budgets_alone_publish_to_the_topic_that_stops(self, stack: Template) -> None:
        allow = [each for each in self.statements(stack, "StopTopic") if each["Effect"] == "Allow"]
        assert [each["Principal"] for each in allow] == [{"Service": "budgets.amazonaws.com"}]

    @pytest.mark.parametrize("topic", ["Notices", "StopTopic"])
    def test_nothing_is_published_in_the_clear(self, stack: Template, topic: str) -> None:
        (denied,) = [each for each in self.statements(stack, topic) if each["Effect"] == "Deny"]
        assert (denied["Principal"], denied["Action"], denied["Condition"]) == (
            "*",
            "sns:Publish",
            TLS_ONLY,
        )

    def test_the_stop_function_alone_hears_of_the_topic_that_stops(self, stack: Template) -> None:
        stop = {"Fn::GetAtt": [logical(stack, "StopFunction", "AWS::Lambda::Function"), "Arn"]}
        topic = {"Ref": logical(stack, "StopTopic", "AWS::SNS::Topic")}
        (heard,) = resources(stack, "AWS::SNS::Subscription")
        (caller,) = resources(stack, "AWS::Lambda::Permission", FunctionName=stop)

        assert (heard["Protocol"], heard["Endpoint"], heard["TopicArn"]) == ("lambda", stop, topic)
        assert (caller["Principal"], caller["SourceArn"]) == ("sns.amazonaws.com", topic)

    def test_a_subscriber_keeps_its_resource_wherever_it_stands(self, tmp_path: Path) -> None:
        mail = AlarmSubscription(protocol="email", endpoint="ops@example.com")
        queue = AlarmSubscription(
            protocol="sqs", endpoint="arn:aws:sqs:us-east-2:111122223333:alarms"
        )

        def made(folder: str, *subscribers: AlarmSubscription) -> dict[str, Any]:
            place = changed(environment(HOME), observability={"alarm_subscriptions": subscribers})
            found = synth_alone(place, tmp_path / folder, GuardStack, environment=place)[
                "Resources"
            ]
            heard = {
                name: each
                for name, each in found.items()
                if each["Type"] == "AWS::SNS::Subscription"
            }
            return {
                name: each
                for name, each in heard.items()
                if each["Properties"]["Protocol"] != "lambda"
            }

        both = made("both", mail, queue)
        assert both == made("turned", queue, mail)
        assert made("one", queue).items() <= both.items()
        assert sorted(
            (each["Properties"]["Protocol"], each["Properties"]["Endpoint"])
            for each in both.values()
        ) == [
            ("email", "ops@example.com"),
            ("sqs", "arn:aws:sqs:us-east-2:111122223333:alarms"),
        ]


class TestBudget:
    def notifications(self, stack: Template) -> list[tuple[str, float, str, list[Any]]]:
        return [
            (
                each["Notification"]["NotificationType"],
                each["Notification"]["Threshold"],
                each["Notification"]["ThresholdType"],
                [one["Address"] for one in each["Subscribers"]],
            )
            for each in one(stack, "AWS::Budgets::Budget")["NotificationsWithSubscribers"]
        ]

    def test_what_is_spent_stops_at_five_thresholds_and_what_is_forecast_tells_people(
        self, stack: Template
    ) -> None:
        stop, people = (
            {"Ref": logical(stack, name, "AWS::SNS::Topic")} for name in ("StopTopic", "Notices")
        )

        assert self.notifications(stack) == [
            *(("ACTUAL", percent, "PERCENTAGE", [stop]) for percent in (100, 125, 150, 200, 300)),
            ("FORECASTED", 100, "PERCENTAGE", [people]),
        ]

    def test_another_list_of_notifications_has_another_name(self, stack: Template) -> None:
        """CloudFormation replaces the budget, which it cannot under its own name; add a line here,
        keep the others."""
        names = {
            "": "ACTUAL 100, FORECASTED 100",
            "-monthly": (
                "ACTUAL 100, ACTUAL 125, ACTUAL 150, ACTUAL 200, ACTUAL 300, FORECASTED 100"
            ),
        }

        name = one(stack, "AWS::Budgets::Budget")["Budget"]["BudgetName"]
        listed = ", ".join(
            f"{kind} {percent:g}" for kind, percent, _, _ in self.notifications(stack)
        )
        assert names[name.removeprefix(f"tandem-{HOME}")] == listed

    @pytest.mark.parametrize("kind", ["spot", "on-demand", "reservation", "capacity-block"])
    def test_every_kind_of_capacity_has_the_same_budget(
        self, stacks: Templates, stack: Template, kind: str
    ) -> None:
        """Another list of notifications would replace it under its own name, which CloudFormation
        cannot."""
        budgets = [one(each, "AWS::Budgets::Budget") for each in (stacks[f"{kind}-Guard"], stack)]
        assert (
            budgets[0]["NotificationsWithSubscribers"] == budgets[1]["NotificationsWithSubscribers"]
        )

    def test_without_tags_of_ones_own_it_counts_this_environments_instances_alone(
        self, tmp_path: Path
    ) -> None:
        place = changed(environment(HOME), tags={})
        template = synth_alone(place, tmp_path, GuardStack, environment=place)
        assert one(template, "AWS::Budgets::Budget")["Budget"]["CostFilters"] == {
            "TagKeyValue": [f"user:tandem:environment${HOME}"],
            "UsageType": ["USE2-BoxUsage:trn2.48xlarge", "USE2-SpotUsage:trn2.48xlarge"],
        }

    def test_a_region_without_budgets_has_none_and_all_else(self, stacks: Templates) -> None:
        assert environment("dev-trn2-3xlarge").region in REGIONS_WITHOUT_BUDGETS
        assert resources(stacks["dev-trn2-3xlarge-Guard"], "AWS::Budgets::Budget") == []
        assert len(resources(stacks["dev-trn2-3xlarge-Guard"], "AWS::Lambda::Function")) == 2
