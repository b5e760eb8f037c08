"""Steps that serve: scale each server in turn, wait until ready, compare it with its declaration.

A restart does the same on swapped halves. The first server takes the first free half of a node, so
the order of the scales decides which server runs where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import chain

from tandem.run.cluster import Object
from tandem.run.jobs import list_container_statuses
from tandem.run.run_keys import ROUND_STEP
from tandem.run.run_values import RunState, list_confirmed
from tandem.run.run_world import RunEndError, StepProgress, StepWork
from tandem.run.server_state import (
    UNALLOCATED,
    ServerState,
    list_active_pods,
    list_claim_faults,
    list_differences,
    list_unfinished_pods,
    read_servers,
    require_single_servers,
)

CLAIM_WAIT_S = 10 * 60  # from a pod to its devices, however late in the step the pod comes
READY_WAIT_S = 75 * 60  # charts/serve.py gives a start an hour; add the image and a node's warm-up
DOWN_WAIT_S = 10 * 60
MAX_RESTARTS = 3  # of a server before it is ready: a crash loop
MAX_SWAPS = 2  # tries to get the other halves; then the run goes on, and its note says so


def list_scale_order(work: StepWork, start: int) -> tuple[str, ...]:
    """Return the order in which start `start`, from 0, scales the arms; each start reverses it."""
    return work.arms if start % 2 == 0 else work.arms[::-1]


def count_starts(work: StepWork) -> int:
    """Return how many restarts are done, which is the number of the next start."""
    return sum(
        name.startswith("restart-") and step.state == "done"
        for name, step in work.journal.steps.items()
    )


def start_servers(work: StepWork) -> StepProgress:
    """Scale the first server to one; the next when the claim of the one before is allocated."""
    return scale_in_order(
        work, list_scale_order(work, count_starts(work) + work.lease_number - 1 + work.pair)
    )


def scale_in_order(work: StepWork, arms: Sequence[str]) -> StepProgress:
    """Scale the servers one after the other, each once the one before it has its devices.

    Raises:
        RunEndError: a server gets no devices in time, or has more than one pod.
        ExternalError: Kubernetes failed.
    """
    require_single_servers(work)
    servers = read_servers(work)
    for arm in arms:
        pods = list_unfinished_pods(work, arm)
        if not pods:
            work.world.cluster.scale_deployment(work.namespace, arm, 1)
        server = servers.get(arm)
        if server is not None and server.claim:
            continue
        trouble = "no pod yet"
        if server is not None:
            trouble = server.trouble or UNALLOCATED
        _begin_wait(work, f"devices of {arm}")
        wait_s = min(_count_wait_s(work), _count_age_s(work, pods))
        if wait_s > CLAIM_WAIT_S:
            advice = "see docs/runbook-serving.md#not-ready"
            raise RunEndError(
                f"{arm} has no devices after {CLAIM_WAIT_S // 60} min: {trouble}; {advice}"
            )
        return work.keep_running(f"{arm} waits for its devices: {trouble}")
    _end_wait(work)
    return StepProgress(state="done", note=describe_placements(servers, arms))


def _begin_wait(work: StepWork, target: str) -> None:
    """Write down that the step waits for a target, unless it does already; the journal keeps it."""
    if work.result.get("waits_for") != target:
        since = work.world.now().isoformat()
        work.result = {**work.result, "waits_for": target, "waits_since": since}


def _count_wait_s(work: StepWork) -> float:
    """Return how long the step has waited for its target."""
    return (work.world.now() - datetime.fromisoformat(work.result["waits_since"])).total_seconds()


def _end_wait(work: StepWork) -> None:
    work.result = {
        key: value for key, value in work.result.items() if key not in {"waits_for", "waits_since"}
    }


def _count_age_s(work: StepWork, pods: Sequence[Object]) -> float:
    """Return the age of the newest of some pods; infinite without one."""
    times = [datetime.fromisoformat(str(pod["metadata"]["creationTimestamp"])) for pod in pods]
    return min(((work.world.now() - time).total_seconds() for time in times), default=math.inf)


def describe_placements(servers: dict[str, ServerState], arms: Sequence[str]) -> str:
    """Return the devices of each server."""
    return ", ".join(f"{arm} on {servers[arm].placement}" for arm in arms if arm in servers)


def wait_until_ready(work: StepWork) -> StepProgress:
    """Wait until every server answers: its start-up probe has received a token from the device.

    Raises:
        RunEndError: a server restarts again and again, has a second pod, or does not start in time.
        ExternalError: Kubernetes failed.
    """
    require_single_servers(work)
    servers = read_servers(work)
    waiting = [name for name in work.arms if name not in servers or not servers[name].is_serving]
    details = []
    for name in waiting:
        pods = list_unfinished_pods(work, name)
        statuses = chain.from_iterable(map(list_container_statuses, pods))
        counts = [row.get("restartCount", 0) for row in statuses]
        trouble = servers[name].trouble if name in servers else f"{len(pods)} pods"
        if max(counts, default=0) >= MAX_RESTARTS:
            raise RunEndError(
                f"{name} was restarted {max(counts)} times and is not ready: {trouble}"
            )
        if work.count_elapsed_s() > READY_WAIT_S:
            raise RunEndError(f"{name} is not ready after {READY_WAIT_S // 60} min: {trouble}")
        detail = f"{name} ({trouble})" if trouble else name
        details.append(detail)
    if waiting:
        return work.keep_running(f"waits for {', '.join(details)}")
    return StepProgress(state="done", note=f"{len(servers)} servers answer")


def check_servers(work: StepWork) -> StepProgress:
    """Compare every server with its declaration; wait for one restarted, deleted, evicted or at 0.

    Raises:
        RunEndError: one differs; the sentence names the field, the running value and the declared
            value.
        ExternalError: Kubernetes failed.
    """
    servers = read_servers(work)
    faults = []
    absent = []
    for variant in work.experiment.all_variants():
        server = servers.get(variant.name)
        pods = list_active_pods(work, variant.name)
        if not pods:
            absent.append(variant.name)
            # nothing changes unless a runner that froze set it to 0 when it woke
            work.world.cluster.scale_deployment(work.namespace, variant.name, 1)
        if len(pods) > 1:
            faults.append(f"{variant.name}: {len(pods)} pods, and one is declared")
        # it was deleted or evicted, and its Deployment brings another
        if server is None or not pods:
            continue
        differences = [*list_differences(work, variant, pods[0]), *list_claim_faults(work, server)]
        faults += [f"{variant.name}: {difference}" for difference in differences]
    if absent:
        _begin_wait(work, f"a pod of {', '.join(absent)}")
        if _count_wait_s(work) > DOWN_WAIT_S:
            faults += [f"{name}: 0 pods, and one is declared" for name in absent]
    else:
        _end_wait(work)
    if faults:
        state: RunState = "void" if list_confirmed(work.steps.values()) else "ended"
        raise RunEndError(f"what runs is not what is declared: {'; '.join(faults)}", state)
    progress = wait_until_ready(work)
    if progress.state != "done":
        return progress
    return StepProgress(state="done", note=describe_placements(servers, work.arms))


def restart_servers(work: StepWork) -> StepProgress:
    """Start all servers anew, in the other order, so that each arm gets the other half.

    The journal first records the pods that must go; then the servers go to 0 until claims and pods
    are gone. They come back one by one, are ready, and are as declared. Halves that stay the same
    are tried once more, then accepted and noted.

    Raises:
        RunEndError: a server does not go, or does not come back.
        ExternalError: Kubernetes failed.
    """
    work.restart_clock()
    if work.result.get("phase", "again") == "again":
        return _begin_restart(work)
    uids = set(work.result["uids"])
    leaving = [arm for arm in work.arms if uids & _list_uids(work, arm)]
    if leaving or (work.result["phase"] == "down" and _has_claims(work, uids)):
        for arm in work.arms:
            work.world.cluster.scale_deployment(work.namespace, arm, 0)
        leaving_text = ", ".join(leaving) or "claims"
        if work.count_elapsed_s() > DOWN_WAIT_S:
            raise RunEndError(f"{leaving_text} did not go in {DOWN_WAIT_S // 60} min")
        return work.keep_running(f"waits for {leaving_text} to go")
    return _finish_restart(work)


def _begin_restart(work: StepWork) -> StepProgress:
    """Record which pods must go; servers started by a new lease have measured no round and stay."""
    steps = work.journal.steps
    lease = work.leases[-1]
    ends = [
        step.ended_at
        for name, step in steps.items()
        if name.startswith(ROUND_STEP) and step.ended_at
    ]
    if lease.raised_at > max(ends):
        return StepProgress(state="done", note="the new lease started the servers anew")
    placements = {name: server.placement for name, server in read_servers(work).items()}
    uids = sorted(chain.from_iterable(_list_uids(work, arm) for arm in work.arms))
    former = work.result.get("former") or placements
    since = work.world.now().isoformat()
    result = {"former": former, "uids": uids, "phase": "down", "since": since}
    return StepProgress(note="takes the servers down", result=result, attempts=work.attempts + 1)


def _has_claims(work: StepWork, uids: set[str]) -> bool:
    """Return whether claims of the deleted pods still exist."""
    claims = work.world.cluster.list_objects("resourceclaims", work.namespace)
    rows = [claim["metadata"].get("ownerReferences") or [] for claim in claims]
    return any(owner["uid"] in uids for owner in chain.from_iterable(rows))


def _list_uids(work: StepWork, arm: str) -> set[str]:
    """Return the uids of a server's pods that have not ended."""
    return {pod["metadata"]["uid"] for pod in list_unfinished_pods(work, arm)}


def _finish_restart(work: StepWork) -> StepProgress:
    if work.result["phase"] == "down":
        work.result = {**work.result, "phase": "up", "since": work.world.now().isoformat()}
    work.restart_clock()
    order = list_scale_order(work, count_starts(work) + work.lease_number)
    for advance in (partial(scale_in_order, work, order), partial(check_servers, work)):
        progress = advance()
        if progress.state != "done":
            return work.keep_running(progress.note)

    former = work.result["former"]
    servers = read_servers(work)
    same = [name for name, server in servers.items() if server.placement == former.get(name)]
    note = describe_placements(servers, work.arms)
    if same and work.attempts < MAX_SWAPS:
        result = {**work.result, "phase": "again"}
        return StepProgress(note=f"{note}: the same halves, once more", result=result)
    if same:
        note += f"; {', '.join(same)} kept the devices after {work.attempts} tries"
    return StepProgress(state="done", note=note, result={"kept": same})
