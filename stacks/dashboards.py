"""Dashboards in CloudFormation: each widget as tandem.watch draws it.

Invariant: nothing is drawn that tandem.watch refuses: a dashboard with a fault ends the synthesis with its sentences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.stack import RefusedError
from tandem.watch.body import body, faults
from tandem.watch.widget import Dashboard


class Dashboards(Construct):
    """One resource for each dashboard.

    Raises:
        RefusedError: CloudWatch would refuse one, or it draws what nobody sends.
    """

    def __init__(self, scope: Construct, id_: str, *, dashboards: Sequence[Dashboard], region: str) -> None:
        super().__init__(scope, id_)
        for dashboard in dashboards:
            wrong = faults(dashboard)
            if wrong:
                raise RefusedError(f"dashboard {dashboard.name}: {'; '.join(wrong)}")
            cloudwatch.CfnDashboard(
                self, dashboard.name, dashboard_name=dashboard.name,
                dashboard_body=json.dumps(body(dashboard, region), separators=(",", ":")),
            )  # fmt: skip
