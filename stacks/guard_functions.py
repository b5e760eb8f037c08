"""The two functions that stop the fleet: their files, role, log and times.

Invariant: a function holds the files in its files.txt and nothing else. Its handler is next to the
package, so the code in Lambda is the code in a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from stacks.guard_rights import WILDCARD_REASONS, list_function_statements
from stacks.policy import account_condition, allow
from stacks.role import LAMBDA, add_log_group, add_python_function, add_role
from stacks.stack import ROOT, copy_files
from tandem.declarations import names
from tandem.declarations.environment import Environment
from tandem.guard.pass_metrics import PASS_MINUTES
from tandem.ops.guard_config import build_guard_config

# A pass calls AWS some twenty times, and a call without an answer takes 33 s (GUARD_CLIENT_CONFIG
# in tandem/aws/client_config.py). The rest is for writes that must be repeated because others came
# first.
# Two passes at once are harmless: their writes are conditional.
TIMEOUT_S = 840
# of a call by a budget
RETRIES = 2
STOP_MINUTES = 60

FunctionKind = Literal["stop", "reap"]
DESCRIPTIONS: dict[FunctionKind, str] = {
    "stop": "stops the fleet",
    "reap": "looks at the fleet, and stops it where it must",
}
FUNCTIONS = tuple(DESCRIPTIONS)


def add_guard_function(
    scope: Construct,
    kind: FunctionKind,
    *,
    environment: Environment,
    topic_arn: str,
    key: kms.IKey,
    queue_arn: str,
) -> lambda_.Function:
    """Add one of the functions, with its role and its log.

    No concurrency is reserved: an account must keep as much unreserved as a new account has in all,
    so a reservation would fail there. Passes that run at the same time agree on their writes.
    """
    scope = Construct(scope, kind.capitalize())
    is_stop = kind == "stop"
    log_name = names.function_log_group_name(environment, kind)
    group = add_log_group(scope, "Log", environment.log_retention_days, name=log_name, key=key)
    statements = [
        *list_function_statements(environment, topic_arn=topic_arn, key_arn=key.key_arn),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], [group.log_group_arn]),
    ]
    if is_stop:
        statements.append(allow(["sqs:SendMessage"], [queue_arn]))
    conditions = account_condition(environment)
    role = add_role(
        scope,
        LAMBDA,
        conditions=conditions,
        policy_name=kind,
        statements=statements,
        reasons=WILDCARD_REASONS,
    )

    paths = {file: file.removeprefix(f"lambdas/{kind}/") for file in list_function_files(kind)}
    function = add_python_function(
        scope,
        role,
        lambda_.Code.from_asset(copy_files(*paths.items()).name),
        group,
        timeout_s=TIMEOUT_S,
        function_name=names.guard_function_name(environment, kind),
        description=DESCRIPTIONS[kind],
        environment=dict(function_variables(environment)),
    )

    # a failed stop is repeated and then reported; a failed pass is left to the next one.
    # The CDK's own destination would allow the function to read the queue's attributes too.
    config = lambda_.CfnEventInvokeConfig
    failure_destination = config.DestinationConfigProperty(
        on_failure=config.OnFailureProperty(destination=queue_arn)
    )
    config(
        scope,
        "Calls",
        function_name=function.function_name,
        qualifier="$LATEST",
        maximum_retry_attempts=RETRIES if is_stop else 0,
        maximum_event_age_in_seconds=60 * (STOP_MINUTES if is_stop else PASS_MINUTES),
        destination_config=failure_destination if is_stop else None,
    )
    return function


def add_reaper_schedule(scope: Construct, function: lambda_.IFunction) -> None:
    """Add the rule that starts the reaper's passes; the next pass does the work of a failed one."""
    interval = Duration.minutes(PASS_MINUTES)
    events.Rule(
        scope,
        "Rule",
        description="makes the reaper look at the fleet",
        schedule=events.Schedule.rate(interval),
        targets=[targets.LambdaFunction(function, max_event_age=interval, retry_attempts=2)],
    )


def function_variables(environment: Environment) -> Mapping[str, str]:
    """Return both functions' variables: nothing that changes with each reservation or block.

    The node group has a block's hours, in the tags that Fleet writes.
    """
    config = build_guard_config(environment)
    return replace(config, block_starts=None, block_ends=None).to_variables()


def list_function_files(kind: FunctionKind) -> list[str]:
    """Return the files of a function, relative to the repository."""
    return (ROOT / "lambdas" / kind / "files.txt").read_text().split()
