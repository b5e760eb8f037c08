"""The Guard stack: what stops a fleet that nobody stops, what tells of it, and what a start stands on.

Invariant: it knows no experiment and no id of a reservation, waits for no cluster and stands before every fleet: Fleet
is deployed after it and goes before it. Each of its three paths (a lease's one-shot stop, the reaper, the budget) works
without the other two.
"""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from stacks.alarms import AlarmSet
from stacks.budget import MonthlyBudget
from stacks.guard_functions import FUNCTIONS, GuardFunction, ReaperSchedule
from stacks.guard_key import GuardKey
from stacks.guard_rights import list_function_statements
from stacks.people import PeoplePolicies
from stacks.stack import EnvironmentStack
from stacks.stop_schedules import DeadLetterQueue, StopScheduleGroup
from stacks.topics import PeopleTopic, StopTopic
from tandem.monitoring.guard_alarms import build_guard_alarms
from tandem.spec.budgets import needs_manual_budget
from tandem.spec.environment import Environment


class GuardStack(EnvironmentStack):
    """Functions, schedules' group and role, queue, topics, budget, and the alarms on all of these."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope, id_, environment=environment, description="Tandem: what stops the fleet, and tells of it"
        )
        key = GuardKey(self, "Key", environment=environment)
        notices = PeopleTopic(self, "Notices", environment=environment, key_arn=key.arn)
        dead_letters = DeadLetterQueue(self, "DeadLetters", environment=environment, key_arn=key.arn)
        StopScheduleGroup(self, "OneShot", environment=environment, queue_arn=dead_letters.arn, key_arn=key.arn)
        statements = list_function_statements(environment, topic_arn=notices.topic_arn, key_arn=key.arn)
        stop_function, reap_function = (
            GuardFunction(
                self,
                function_kind.capitalize(),
                function_kind=function_kind,
                environment=environment,
                key_arn=key.arn,
                queue_arn=dead_letters.arn,
                statements=statements,
            )
            for function_kind in FUNCTIONS
        )
        ReaperSchedule(self, "EveryPass", function_arn=reap_function.arn)
        stop_topic = StopTopic(
            self, "StopTopic", environment=environment, key_arn=key.arn, function_arn=stop_function.arn
        )
        if needs_manual_budget(environment):
            cdk.Annotations.of(self).add_info(
                f"no budget: CloudFormation has none in {environment.region}; make it by hand (docs/runbook.md)"
            )
        else:
            MonthlyBudget(
                self, "Budget", environment=environment, stop_topic_arn=stop_topic.topic_arn,
                people_topic_arn=notices.topic_arn,
            )  # fmt: skip
        if environment.guard.people_policies:
            PeoplePolicies(self, "People", environment=environment)
        AlarmSet(self, "Alarms", alarms=build_guard_alarms(environment), topic_arn=notices.topic_arn)
