"""Rights of operator, engineer and viewer in the whole cluster; those in an experiment's namespace: charts/base.py.

Invariant: people only read. An admin needs none of these roles: EKS's own cluster-admin policy covers them. The others
have no right in the whole cluster before these objects are applied.
"""

from __future__ import annotations

from charts.manifest import Object
from charts.roles import build_people_roles

FOLDER = "people"


def render_people() -> dict[str, list[Object]]:
    """Return the objects of people's rights by part."""
    return {"cluster": build_people_roles(None)}
