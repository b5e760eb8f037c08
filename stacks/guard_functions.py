"""The two functions that stop the fleet: the files that they are made of, their role, log and times.

Invariant: a function holds the files that its files.txt lists and nothing else; its handler lies beside the package, so
that what runs in Lambda is what runs in a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.guard_rights import list_function_statements
from stacks.policy import account_condition, allow
from stacks.role import LAMBDA, add_log_group, add_python_function, add_role
from stacks.stack import ROOT, copy_files
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.ops.guard_config import build_guard_config
from tandem.spec import names
from tandem.spec.environment import Environment

# A pass asks AWS some twenty times, and a call takes 33 s where nobody answers (CLIENT_CONFIG in
# tandem/guard/config.py); the rest is for writes that others come before.
# Two passes at once are harmless: what they write is conditional.
TIMEOUT_S = 840
RETRIES, STOP_MINUTES = 2, 60  # of a call that a budget made

FunctionKind = Literal["stop", "reap"]
DESCRIPTIONS: dict[FunctionKind, str] = {
    "stop": "stops the fleet",
    "reap": "looks at the fleet, and stops it where it must",
}
FUNCTIONS = tuple(DESCRIPTIONS)


def add_guard_function(
    scope: Construct, kind: FunctionKind, *, environment: Environment, topic_arn: str, key_arn: str, queue_arn: str
) -> str:
    """Add one of the functions, with its role and its log, and return its ARN.

    No concurrency is reserved: an account has to keep as much unreserved as a new account has in all, so that a
    reservation would fail there; and passes that run next to each other agree on what they write.
    """
    scope = Construct(scope, kind.capitalize())
    log_name, is_stop = names.function_log_group_name(environment, kind), kind == "stop"
    group = add_log_group(scope, "Log", environment.log_retention_days, name=log_name, key_arn=key_arn)
    statements = [
        *list_function_statements(environment, topic_arn=topic_arn, key_arn=key_arn),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], [group.attr_arn]),
        *([allow(["sqs:SendMessage"], [queue_arn])] if is_stop else []),
    ]
    conditions = account_condition(environment)
    role = add_role(scope, LAMBDA, conditions=conditions, policy_name=kind, statements=statements)
    targets = {file: file.removeprefix(f"lambdas/{kind}/") for file in list_function_files(kind)}
    code = assets.Asset(scope, "Code", path=copy_files(*targets.items()).name)
    function = add_python_function(
        scope, role, code, group, timeout_s=TIMEOUT_S, function_name=names.guard_function_name(environment, kind),
        description=DESCRIPTIONS[kind],
        environment=lambda_.CfnFunction.EnvironmentProperty(variables=dict(function_variables(environment))),
    )  # fmt: skip
    # a stop that failed is tried again and then told of, a pass is left to the next
    config = lambda_.CfnEventInvokeConfig
    failure_destination = config.DestinationConfigProperty(on_failure=config.OnFailureProperty(destination=queue_arn))
    config(
        scope, "Calls", function_name=function.ref, qualifier="$LATEST",
        maximum_retry_attempts=RETRIES if is_stop else 0,
        maximum_event_age_in_seconds=60 * (STOP_MINUTES if is_stop else PASS_MINUTES),
        destination_config=failure_destination if is_stop else None,
    )  # fmt: skip
    return function.attr_arn


def add_reaper_schedule(scope: Construct, function_arn: str) -> None:
    """Add the rule that makes the reaper look; the next pass does what one that failed would have."""
    retries = events.CfnRule.RetryPolicyProperty(
        maximum_event_age_in_seconds=60 * PASS_MINUTES, maximum_retry_attempts=2
    )
    rule = events.CfnRule(
        scope, "Rule", description="makes the reaper look at the fleet", state="ENABLED",
        schedule_expression=f"rate({PASS_MINUTES} minutes)",
        targets=[events.CfnRule.TargetProperty(id="reap", arn=function_arn, retry_policy=retries)],
    )  # fmt: skip
    lambda_.CfnPermission(
        scope, "Invoke", action="lambda:InvokeFunction", function_name=function_arn,
        principal="events.amazonaws.com", source_arn=rule.attr_arn,
    )  # fmt: skip


def function_variables(environment: Environment) -> Mapping[str, str]:
    """Return what both functions are told: nothing of a reservation or a block, which changes with each one.

    A block's hours stand on the node group, which Fleet tags with them.
    """
    config = build_guard_config(environment)
    return replace(config, block_starts=None, block_ends=None).to_variables()


def list_function_files(kind: FunctionKind) -> list[str]:
    """Return the files that a function is made of, relative to the repository."""
    return (ROOT / "lambdas" / kind / "files.txt").read_text().split()
