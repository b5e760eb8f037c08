"""Dashboards in CloudFormation: each widget as tandem.monitoring draws it.

Invariant: a dashboard beyond a limit of CloudWatch ends the synthesis, with a sentence for each limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.stack import TemplateLimitError
from tandem.monitoring.dashboard_body import build_body, find_limit_faults
from tandem.monitoring.widget import Dashboard


class DashboardSet(Construct):
    """One resource for each dashboard.

    Raises:
        TemplateLimitError: CloudWatch would refuse one.
    """

    def __init__(self, scope: Construct, id_: str, *, dashboards: Sequence[Dashboard], region: str) -> None:
        super().__init__(scope, id_)
        for dashboard in dashboards:
            fault_texts = list(find_limit_faults(dashboard))
            if fault_texts:
                raise TemplateLimitError("; ".join(fault_texts), where=dashboard.name, change="mend tandem/monitoring")
            cloudwatch.CfnDashboard(
                self, dashboard.name, dashboard_name=dashboard.name,
                dashboard_body=json.dumps(build_body(dashboard, region), separators=(",", ":")),
            )  # fmt: skip
