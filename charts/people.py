"""Cluster-wide rights of operator, engineer and viewer; an experiment's are in charts/base.py.

Invariant: people only read. An admin needs none of these roles: EKS's own cluster-admin policy
covers them. The others have no right in the whole cluster before these objects are applied.
"""

from __future__ import annotations

import cdk8s
from constructs import Construct

from charts.chart import TandemChart
from charts.roles import add_people_roles

FOLDER = "people"
WAVE = 0


class PeopleChart(TandemChart):
    """Roles and bindings of people in the whole cluster."""

    def __init__(self, scope: Construct, id_: str) -> None:
        super().__init__(scope, id_, wave=WAVE)
        add_people_roles(self, scope="everywhere")


def build_people_charts() -> dict[str, cdk8s.Chart]:
    """Return the chart of people's rights by its id."""
    return {"cluster": PeopleChart(cdk8s.App(), "cluster")}
