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
from stacks.guard_functions import FUNCTIONS, EveryPass, GuardFunction
from stacks.guard_key import GuardKey
from stacks.guard_rights import of_functions
from stacks.notices import Notices, StopTopic
from stacks.one_shot import DeadLetters, OneShot
from stacks.people import PeoplePolicies
from stacks.stack import EnvironmentStack
from tandem.spec.budgets import by_hand
from tandem.spec.environment import Environment
from tandem.watch.guard_alarms import guard_alarms


class GuardStack(EnvironmentStack):
    """Functions, schedules' group and role, queue, topics, budget, and the alarms on all of these."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(
            scope, id_, environment=environment, description="Tandem: what stops the fleet, and tells of it"
        )
        key = GuardKey(self, "Key", environment=environment)
        notices = Notices(self, "Notices", environment=environment, key_arn=key.arn)
        letters = DeadLetters(self, "DeadLetters", environment=environment, key_arn=key.arn)
        OneShot(self, "OneShot", environment=environment, queue_arn=letters.arn, key_arn=key.arn)
        rights = of_functions(environment, topic_arn=notices.topic_arn, key_arn=key.arn)
        stop, reap = (
            GuardFunction(
                self, what.capitalize(), what=what, environment=environment, key_arn=key.arn, queue_arn=letters.arn,
                statements=rights,
            )
            for what in FUNCTIONS
        )  # fmt: skip
        EveryPass(self, "EveryPass", function_arn=reap.arn)
        stops = StopTopic(self, "StopTopic", environment=environment, key_arn=key.arn, function_arn=stop.arn)
        if by_hand(environment):
            cdk.Annotations.of(self).add_info(
                f"no budget: CloudFormation has none in {environment.region}; make it by hand (docs/runbook.md)"
            )
        else:
            MonthlyBudget(
                self, "Budget", environment=environment, stop_topic_arn=stops.topic_arn,
                people_topic_arn=notices.topic_arn,
            )  # fmt: skip
        if environment.guard.people_policies:
            PeoplePolicies(self, "People", environment=environment)
        AlarmSet(self, "Alarms", alarms=guard_alarms(environment), topic_arn=notices.topic_arn)
