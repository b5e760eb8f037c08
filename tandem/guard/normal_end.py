"""The normal end of a lease: the fleet goes to 0, unfenced; the next start needs no release.

First the lease records that it ends, so that no start raises under it and the reaper leaves it
alone for a while. The bucket and AWS hold the progress, so the next end, or the reaper, finishes an
end that dies anywhere. Invariant: standard library and boto3 only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from tandem.errors import ExternalError, InputError
from tandem.guard.apply import scale_to_zero
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.fleet_changes import follow_fleet
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import Lease, LeasePointer, clear_pointer, lease_key, write_lease
from tandem.guard.observe import observe_fleet
from tandem.guard.ownership import LeaseOwner
from tandem.guard.schedules import delete_schedule
from tandem.guard.values import convert_call_errors

# then the reaper takes over: it leaves an ending lease alone for 30
END_TIMEOUT = timedelta(minutes=25)


def end_lease(  # noqa: PLR0913 - whose lease, the time, and who hears of it
    clients: AwsClients,
    config: GuardConfig,
    *,
    run: str | None,
    clock: Callable[[], datetime],
    wait: Callable[[timedelta], None],
    log: Callable[[str], None] = lambda _: None,
) -> str:
    """End a run's lease: desired 0, wait until EC2 lists no instance, remove stop and pointer.

    Args:
        run: the run whose lease ends; None takes the present lease.
        clock: the time.
        wait: waits for so long.
        log: takes a sentence for each step.

    Returns:
        The run whose lease ended.

    Raises:
        InputError: there is no lease, another run has it, or the fleet is fenced; nothing was done.
        ExternalError: AWS failed, or instances live on; the lease is marked as ending, and another
            end goes on with it.
    """
    return _NormalEnd(clients, config, clock, log).finish(run, wait)


class _NormalEnd:
    """One end at work."""

    def __init__(
        self,
        clients: AwsClients,
        config: GuardConfig,
        clock: Callable[[], datetime],
        log: Callable[[str], None],
    ) -> None:
        self.clients = clients
        self.config = config
        self.clock = clock
        self.log = log
        self._status_command = f"tandem status --env {config.environment}"
        self._retry_advice = f"run it again: tandem stop --end --env {config.environment}"

    def finish(self, run: str | None, wait: Callable[[timedelta], None]) -> str:
        """Take every step."""
        fleet = observe_fleet(self.clients, self.config, self.clock())
        pointer, lease = self._require_lease(fleet, run)
        lease = self._announce_end(lease)
        owner = LeaseOwner(self.clients, self.config, pointer, lease)
        if fleet.has_node_group is not False:  # unknown is not taken for gone
            with self._convert_errors(f"setting {self.config.node_group_description} to 0"):
                owner.call_as_owner(
                    partial(scale_to_zero, self.clients, self.config), self._build_loss_error
                )
            self.log(f"{self.config.node_group_description} set to 0")
        changes = follow_fleet(
            self.clients, self.config, self.clock, wait, timeout=END_TIMEOUT, awaits_zero=True
        )
        for _, change in changes:
            self.log(change)
        self.log("EC2 lists no instance")
        with self._convert_errors(f"deleting schedule {lease.schedule}"):
            delete = partial(delete_schedule, self.clients, self.config, lease.schedule)
            owner.call_as_owner(delete, self._build_loss_error)
        with self._convert_errors("removing the pointer to the lease"):
            if not clear_pointer(self.clients, self.config, pointer):
                raise self._build_loss_error("somebody else wrote the pointer")
        self.log(
            f"run {lease.run} has no lease any more; its one-shot stop {lease.schedule} is deleted"
        )
        return lease.run

    def _require_lease(self, fleet: FleetState, run: str | None) -> tuple[LeasePointer, Lease]:
        """Return the pointer and the lease that may be ended now."""
        name = self.config.environment
        advice_if_unknown = {"consequence": "nothing is ended", "change": self._retry_advice}
        fleet.require_known("fence", "lease", where=name, **advice_if_unknown)
        if fleet.fence is not None and fleet.is_fenced:
            advice = f"the stop ends the fleet; then tandem stop --release --env {name}"
            raise InputError(
                f"{fleet.fence.who} fenced it: {fleet.fence.why}", where=name, change=advice
            )
        if fleet.lease is None or fleet.pointer is None:
            problem = (
                fleet.pointer.fault if fleet.pointer else ""
            ) or "there is no lease, so nothing to end"
            advice = (
                f"tandem status --env {name} says what runs; tandem stop --env {name} stops it"
                " whoever owns it"
            )
            raise InputError(problem, where=name, change=advice)
        if run is not None and fleet.lease.run != run:
            where = self.config.url(lease_key(fleet.lease.run))
            problem = f"run {fleet.lease.run} of {fleet.lease.who} has the lease, not run {run}"
            raise InputError(
                problem,
                where=where,
                change=f"name that run, or leave it alone: {self._status_command}",
            )
        if not fleet.can_scale and fleet.has_node_group is not False:
            where = self.config.node_group_description
            fleet.require_known("node group", where=where, **advice_if_unknown)
            advice = f"{self._status_command} says whose it is"
            raise InputError(
                "it belongs to another run, so it is left alone", where=where, change=advice
            )
        return fleet.pointer, fleet.lease

    def _announce_end(self, lease: Lease) -> Lease:
        """Mark the lease as ending; a second end keeps the moment of the first."""
        if lease.ending is not None:
            return lease
        with self._convert_errors("writing that the lease ends"):
            stored_lease = write_lease(
                self.clients, self.config, replace(lease, ending=self.clock())
            )
        if stored_lease is None:
            problem = "somebody changed the lease at this moment"
            raise InputError(problem, where=self.config.environment, change=self._retry_advice)
        self.log(f"run {lease.run} ends")
        return stored_lease

    def _convert_errors(self, step: str) -> AbstractContextManager[None]:
        return convert_call_errors(step, self.config.environment, self._retry_advice)

    def _build_loss_error(self, loss: str) -> ExternalError:
        problem = f"the end was interrupted: {loss}"
        return ExternalError(problem, where=self.config.environment, change=self._status_command)
