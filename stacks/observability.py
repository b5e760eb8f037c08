"""The Observability stack: dashboards, alarms, and the agent that watches the machine.

Invariant: all that is drawn and all that alarms is computed by tandem.watch from the environment and its experiments;
this stack writes it down. Beside Workloads it is the only template that an experiment changes.
"""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from stacks.alarms import AlarmSet
from stacks.container_insights import ContainerInsights
from stacks.dashboards import Dashboards
from stacks.notices import topic_arn
from stacks.stack import EnvironmentStack, RefusedError
from stacks.watch_key import WatchKey
from tandem.watch.agent import addon_configuration
from tandem.watch.alarms import alarms
from tandem.watch.dashboards import dashboards
from tandem.watch.filters import filters
from tandem.watch.scope import Scope

MOST_RESOURCES = 500  # of a template: CloudFormation user guide, quotas


class ObservabilityStack(EnvironmentStack):
    """What an environment is watched by; without Container Insights its dashboards and alarms alone.

    Args:
        watched: the environment, its experiments and their traffic.
        agent_version: of the add-on; None leaves it to EKS.

    Raises:
        RefusedError: there are more alarms than a template takes, or a dashboard is unsound.
    """

    def __init__(self, scope: Construct, id_: str, *, watched: Scope, agent_version: str | None) -> None:
        environment = watched.environment
        super().__init__(
            scope, id_, environment=environment, description="Tandem: dashboards, alarms, Container Insights"
        )
        AlarmSet(self, "Alarms", alarms=alarms(watched), topic_arn=topic_arn(environment))
        Dashboards(self, "Dashboards", dashboards=dashboards(watched), region=environment.region)
        if environment.observability.container_insights:
            key = WatchKey(self, "Key", environment=environment)
            ContainerInsights(
                self, "ContainerInsights", environment=environment, key_arn=key.arn, filters=filters(environment),
                configuration=addon_configuration(environment), version=agent_version,
            )  # fmt: skip
        self._fits()

    def _fits(self) -> None:
        made = [child.cfn_resource_type for child in self.node.find_all() if isinstance(child, cdk.CfnResource)]
        if len(made) > MOST_RESOURCES:
            alarms_ = made.count("AWS::CloudWatch::Alarm")
            raise RefusedError(
                f"{self.stack_name}: {len(made)} resources, {alarms_} of them alarms; a template takes "
                f"{MOST_RESOURCES}. Host fewer variants in this environment, or take values out of "
                "observability.reference"
            )
