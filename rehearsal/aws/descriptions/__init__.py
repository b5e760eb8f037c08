"""Describes deployed resources through boto3, in the spelling of their templates.

Each function takes the clients, the physical id and the resolved properties, which say where to
look, and returns the described properties and attributes. A value of the properties comes back only
if the query to the service used it, or if an archive with that very digest was found.
"""

from __future__ import annotations

from rehearsal.aws.descriptions import (
    eks,
    functions,
    guard,
    identity,
    image,
    monitoring,
    network,
    storage,
)
from rehearsal.aws.descriptions.conversion import DescribeFunction

DESCRIBE: dict[str, DescribeFunction] = {
    **network.DESCRIBE,
    **eks.DESCRIBE,
    **storage.DESCRIBE,
    **identity.DESCRIBE,
    **functions.DESCRIBE,
    **image.DESCRIBE,
    **monitoring.DESCRIBE,
    **guard.DESCRIBE,
}
