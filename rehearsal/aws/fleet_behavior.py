"""The behavior of node groups and schedules of the local endpoint: knobs for tests.

Invariant: a knob that is not given has its default, so a set of knobs never depends on the set
before it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetBehavior:
    """All knobs; `AwsEndpoint.set_fleet` puts them into force.

    Args:
        start_delay_s: how long an instance is pending, in seconds.
        stop_delay_s: how long an instance is shutting down, in seconds.
        ignores_request: UpdateNodegroupConfig answers well and does nothing; its update stays
            InProgress.
        keeps_surplus: the group takes sizes but terminates no instance, as with a drain or a hook
            that never ends; its deletion waits too. Termination by id works.
        refuses_update: the group is UPDATING and refuses UpdateNodegroupConfig with
            ResourceInUseException.
        throttles: UpdateNodegroupConfig is refused with ThrottlingException.
        no_capacity: no instance starts; the group gets the health issue AsgInstanceLaunchFailures
            and is DEGRADED.
        clock_offset_s: how far the endpoint's clock is ahead of this machine's, in seconds. Launch
            times, delays, schedules and rules use it; Lambda functions, signatures and all else
            that the endpoint runs do not.
        older_s: seconds by which the launch time of every instance is earlier than the real one.
        retry_delay_s: seconds by the endpoint's clock before a schedule's first retry; doubled
            before each next one.
    """

    start_delay_s: float = 0.2
    stop_delay_s: float = 0.2
    ignores_request: bool = False
    keeps_surplus: bool = False
    refuses_update: bool = False
    throttles: bool = False
    no_capacity: bool = False
    clock_offset_s: float = 0.0
    older_s: float = 0.0
    retry_delay_s: float = 1.0
