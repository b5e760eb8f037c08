"""Settings of boto3's clients: how long a call waits for an answer, and how often it is repeated.

Every client of the product is built with one of these. A call takes at most `attempts` times the
two limits, and botocore's pauses between the tries.
"""

from __future__ import annotations

from typing import Any

from botocore.config import Config


def build_client_config(
    *, connect_s: float, read_s: float, attempts: int, **settings: Any
) -> Config:
    """Return the settings of a client.

    Args:
        connect_s: limit of a connection, in seconds.
        read_s: limit of an answer, in seconds.
        attempts: most requests of one call, the first included.
        settings: further ones, as botocore names them.
    """
    return Config(
        connect_timeout=connect_s,
        read_timeout=read_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
        **settings,
    )


# a stop gives up soon: stacks/guard_functions.py sets the time of a pass from these
GUARD_CLIENT_CONFIG = build_client_config(connect_s=2, read_s=8, attempts=3)
# without tries of botocore's own, which would not check the fleet's owner again
SINGLE_TRY_CLIENT_CONFIG = build_client_config(connect_s=2, read_s=8, attempts=1)
# a person waits at a terminal
COMMAND_CLIENT_CONFIG = build_client_config(
    connect_s=10, read_s=60, attempts=5, user_agent_extra="tandem-ops"
)
SECRET_CLIENT_CONFIG = build_client_config(connect_s=10, read_s=20, attempts=3)
