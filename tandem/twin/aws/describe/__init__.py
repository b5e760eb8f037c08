"""Describes deployed resources through boto3, in the spelling of their templates.

Each function takes the clients, the physical id and the resolved properties, which say where to look, and gives the
described properties and attributes. A value of the properties comes back only where the service was asked by it, or
where an archive of that very digest was found.
"""

from __future__ import annotations

from tandem.twin.aws.describe import eks, functions, guard, identity, image, network, storage, watch
from tandem.twin.aws.describe.form import Describe

DESCRIBE: dict[str, Describe] = {
    **network.DESCRIBE, **eks.DESCRIBE, **storage.DESCRIBE, **identity.DESCRIBE, **functions.DESCRIBE,
    **image.DESCRIBE, **watch.DESCRIBE, **guard.DESCRIBE,
}  # fmt: skip
