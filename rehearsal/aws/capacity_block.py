"""Capacity Blocks of the local endpoint: what a person buys and EC2 then describes.

Nothing at the endpoint sells a block: a test says what was bought, and what became of its
extensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

BlockState = Literal["active", "payment-pending", "payment-failed", "cancelled", "unavailable"]
ExtensionStatus = Literal["payment-pending", "payment-failed", "payment-succeeded"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockExtension:
    """A purchased extension; a paid one moves the block's end.

    Args:
        ends: the block's end if it is paid.
        purchased: when it was bought.
    """

    ends: datetime
    purchased: datetime
    status: ExtensionStatus = "payment-pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityBlock:
    """A Capacity Block; `AwsEndpoint.set_blocks` makes EC2 know it.

    EC2 launches from it while it is active, and ends its instances 30 minutes before its end. EKS
    makes its own scheduled action when it first sees the block in a node group, 40 minutes before
    the end of that moment, and never moves it: nobody has seen whether it does.

    Args:
        starts, ends: as bought; an earlier `ends` in a later call is a block that ends early.
        state: EC2 says `scheduled` before the start and `expired` after the end of an active one.
        nodes: instances that are reserved.
        extensions: the oldest first.
    """

    starts: datetime
    ends: datetime
    state: BlockState = "active"
    nodes: int = 1
    extensions: tuple[BlockExtension, ...] = ()
