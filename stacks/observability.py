"""The Observability stack: dashboards, alarms, and the agent that watches the machine.

Invariant: all that is drawn and all that alarms is computed by tandem.monitoring from the environment and its
experiments;
this stack writes it down. Beside Workloads it is the only template that an experiment changes.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.alarms import AlarmSet
from stacks.container_insights import ContainerInsights
from stacks.container_log_key import ContainerLogKey
from stacks.dashboards import DashboardSet
from stacks.stack import EnvironmentStack, TemplateLimitError
from stacks.topics import people_topic_arn
from tandem.monitoring.agent import build_addon_configuration
from tandem.monitoring.alarms import build_alarms
from tandem.monitoring.dashboards import build_dashboards
from tandem.monitoring.log_filters import build_log_filters
from tandem.monitoring.scope import MonitoringScope

MAX_RESOURCES = 500  # of a template: CloudFormation user guide, quotas


class ObservabilityStack(EnvironmentStack):
    """What an environment is watched by; without Container Insights its dashboards and alarms alone.

    Args:
        monitoring_scope: the environment, its experiments and their traffic.
        agent_version: of the add-on; None leaves it to EKS.

    Raises:
        TemplateLimitError: there are more alarms than a template takes, or a dashboard is unsound.
    """

    def __init__(
        self, scope: Construct, id_: str, *, monitoring_scope: MonitoringScope, agent_version: str | None
    ) -> None:
        environment = monitoring_scope.environment
        super().__init__(
            scope, id_, environment=environment, description="Tandem: dashboards, alarms, Container Insights"
        )
        AlarmSet(self, "Alarms", alarms=build_alarms(monitoring_scope), topic_arn=people_topic_arn(environment))
        DashboardSet(self, "Dashboards", dashboards=build_dashboards(monitoring_scope), region=environment.region)
        if environment.observability.container_insights:
            key = ContainerLogKey(self, "Key", environment=environment)
            ContainerInsights(
                self,
                "ContainerInsights",
                environment=environment,
                key_arn=key.arn,
                filters=build_log_filters(environment),
                configuration=build_addon_configuration(environment),
                version=agent_version,
            )
        self._check_size()

    def _check_size(self) -> None:
        resources = [child for child in self.node.find_all() if isinstance(child, cdk.CfnResource)]
        if len(resources) > MAX_RESOURCES:
            alarm_count = sum(isinstance(child, cloudwatch.CfnAlarm) for child in resources)
            raise TemplateLimitError(
                f"{len(resources)} resources, {alarm_count} of them alarms, and a template takes {MAX_RESOURCES}",
                where=self.stack_name,
                change="host fewer variants in this environment, or take values out of observability.reference",
            )
