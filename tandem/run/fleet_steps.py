"""Steps of the nodes: raise, node, label; and the way to zero, which every end takes.

Invariant: `tandem.guard` alone raises, relabels and ends. The run's record has a lease before its
nodes are waited for, and the lease has its `empty_at` only after EC2 listed no instance of it; by
then it is EC2's own moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from tandem.errors import ExternalError, InputError
from tandem.guard.fleet_start import RaiseRequest, raise_fleet
from tandem.guard.fleet_state import FleetState
from tandem.guard.lease import Lease, LeasePointer, read_lease
from tandem.guard.node_labels import relabel_nodes
from tandem.guard.normal_end import end_lease
from tandem.guard.observe import observe_fleet
from tandem.guard.schedules import delete_unreferenced_schedule
from tandem.guard.values import convert_call_errors
from tandem.ops.node_admission import NodeAdmission, admit_compile_jobs, admit_servers, admit_sweep
from tandem.run.fleet_nodes import (
    describe_taints,
    find_device_attribute,
    is_node_ready,
    list_fleet_nodes,
)
from tandem.run.jobs import close_jobs
from tandem.run.node_time import read_node_time
from tandem.run.run_keys import lease_run
from tandem.run.run_values import LeaseSpan, StepRecord
from tandem.run.run_world import RunEndError, StepProgress, StepWork
from tandem.run.server_state import list_unfinished_pods

# an instance boots and joins in minutes; a Capacity Block without one never does
NODE_WAIT_S = 20 * 60
# from a ready node to one that takes pods: the Mountpoint driver looks for its taint in its first
# ten minutes only (awslabs/mountpoint-s3-csi-driver v2.7.0 pkg/driver/node/taint.go)
TAINT_WAIT_S = 12 * 60
# from such a node to its ResourceSlices: the Neuron driver's pod starts and publishes
DEVICE_WAIT_S = 5 * 60
LABEL_WAIT_S = 5 * 60  # from EKS's update to the node; not yet seen on a real account
RELEASE_WAIT_S = 10 * 60  # from the scale to 0 until the last server's pod is gone
NEURON_DEVICE = "neuron_device"


def choose_admission(work: StepWork) -> NodeAdmission:
    """Return which pods may take nodes first: compile jobs if artifacts are missing, else servers.

    The nodes of a sweep admit both at once: the runner alone decides which pods there are.
    """
    if work.experiment.sweep:
        return admit_sweep(work.experiment)
    step = work.journal.steps.get("compile")  # a compile step that a lease's end cut goes on
    needs_compile = (step is None or step.state == "running") and any(
        row.kind == "artifact" and row.state != "present"
        for row in work.world.survey(work.experiment)
    )
    if needs_compile:
        return admit_compile_jobs(work.experiment)
    return choose_serving_admission(work)


def choose_serving_admission(work: StepWork) -> NodeAdmission:
    """Return the admission of the servers of all arms."""
    world = work.world
    return admit_servers(
        world.environment, work.experiment, world.catalogue, nodes=work.plan_inputs.nodes
    )


def raise_nodes(work: StepWork) -> StepProgress:
    """Arm the stop and raise the fleet; a second look gets the lease of the first one.

    Raises:
        RunEndError: a fence, another lease, a window, or a path that is not armed forbids the
            raise.
        ExternalError: AWS failed; the stop is armed or nothing was raised.
    """
    world = work.world
    # decided before the raise, so that a second look requests the same
    if "labels" not in work.result:
        labels = choose_admission(work).labels
        return StepProgress(
            note="looks for what guards the fleet", result={"labels": labels}, attempts=1
        )

    now = world.now()
    fleet = observe_fleet(world.clients, world.guard, now)
    # e.g. just after a raise whose answer was lost
    if fleet.has_node_group and not fleet.is_stable:
        return work.keep_running(f"waits for EKS: the node group is {fleet.status}")
    unarmed_paths = _accept_unarmed_paths(work, fleet)
    labels = work.result["labels"]
    raise_request = build_raise_request(work, _find_lease_name(work), labels, unarmed_paths)
    work.require_seat()
    try:
        lease = raise_fleet(world.clients, world.guard, raise_request, now).lease
    except InputError as fault:
        raise RunEndError(f"the fleet is not raised: {fault}") from fault
    if not work.has_lease:
        _write_lease(work, lease)

    instance_type = world.environment.capacity.instance_type
    return StepProgress(
        state="done",
        note=f"{lease.nodes} x {instance_type} until {lease.deadline:%H:%M} UTC",
        result={"labels": labels, "nodes": lease.nodes},
    )


def build_raise_request(
    work: StepWork, lease_name: str, labels: Mapping[str, str], unarmed_paths: tuple[str, ...] = ()
) -> RaiseRequest:
    """Return the start that a run asks the guard for."""
    run = work.journal.run
    return RaiseRequest(
        run=lease_name,
        hours=run.request.hours,
        nodes=work.plan_inputs.nodes,
        experiment=work.experiment.name,
        node_labels=labels,
        who=f"{run.who} (tandem run {run.run})",
        beats=True,
        unarmed_paths=unarmed_paths,
    )


def _accept_unarmed_paths(work: StepWork, fleet: FleetState) -> tuple[str, ...]:
    """Return the paths that would not stop the fleet; a start arms the schedule itself.

    Raises:
        RunEndError: there are some, and nobody accepted them.
    """
    paths = [
        path
        for path in work.world.read_paths(fleet)
        if path.name != "schedule" and path.state == "unarmed"
    ]
    if paths and not work.request.accept_unarmed:
        reasons = "; ".join(f"{path.name}: {path.sentence}" for path in paths)
        raise RunEndError(
            f"a stop of the fleet is not armed ({reasons}); --accept-unarmed accepts it"
        )
    return tuple(path.name for path in paths)


def _write_lease(work: StepWork, lease: Lease) -> None:
    """Add a lease to the run's record.

    Its moments are its own: an earlier look may have raised the nodes and died before it wrote so.
    """
    span = LeaseSpan(
        name=lease.run,
        nodes=lease.nodes,
        deadline=lease.deadline.isoformat(),
        raised_at=lease.created.isoformat(),
    )
    work.journal.write_run(leases=(*work.leases, span))


def _find_lease_name(work: StepWork) -> str:
    """Return the lease name to request: a start with an unarmed stop returned its lease for good.

    Delete the schedule of such a lease, if it exists all the same: next to it nobody could start.
    """
    if work.has_lease:
        return work.lease_name
    number = work.lease_number
    world = work.world
    with convert_call_errors(
        "reading the leases of the run", world.guard.bucket, "the runner tries again"
    ):
        while True:
            name = lease_run(work.run, number)
            lease, _ = read_lease(world.clients, world.guard, LeasePointer(run=name))
            if lease is None or lease.ending is None:
                return name
            delete_unreferenced_schedule(world.clients, world.guard, name)
            number += 1


def wait_for_nodes(work: StepWork) -> StepProgress:
    """Wait until every node is ready, takes the run's pods, and shows all its devices.

    Raises:
        RunEndError: a node or its devices do not come in time, or a taint stays.
        ExternalError: Kubernetes failed.
    """
    node_count = find_raise_step(work).result["nodes"]
    nodes = [node for node in list_fleet_nodes(work) if is_node_ready(node)]
    if len(nodes) < node_count:
        if work.count_elapsed_s() > NODE_WAIT_S:
            reason = _describe_absence(work)
            raise RunEndError(
                f"{len(nodes)} of {node_count} nodes are ready after {NODE_WAIT_S // 60} min:"
                f" {reason}"
            )
        return StepProgress(note=f"{len(nodes)} of {node_count} nodes are ready")
    taints = describe_taints(nodes)
    if taints:
        return _wait_on_nodes(work, "tainted_at", taints, TAINT_WAIT_S)
    instance_type = work.world.environment.capacity.instance_type
    instance = work.world.catalogue.instances.instances[instance_type]
    device_count = instance.devices.value or 0
    node_names = [node["metadata"]["name"] for node in nodes]
    faults = []
    for name in node_names:
        count = count_devices(work, name)
        if count < device_count:
            faults.append(f"{name} shows {count} of {device_count} devices")
    if not faults:
        return StepProgress(
            state="done", note=f"{', '.join(node_names)}: {device_count} devices each"
        )
    return _wait_on_nodes(work, "free_at", ", ".join(faults), DEVICE_WAIT_S)


def _wait_on_nodes(work: StepWork, key: str, text: str, limit_s: int) -> StepProgress:
    """Return that the step waits for ready nodes; the journal keeps since when, under a key."""
    since = work.result.get(key) or work.world.now().isoformat()
    if (work.world.now() - datetime.fromisoformat(since)).total_seconds() > limit_s:
        raise RunEndError(
            f"{text}, and it stayed so for {limit_s // 60} min; see"
            " docs/runbook-serving.md#not-started"
        )
    return StepProgress(note=text, result={**work.result, key: since})


def find_raise_step(work: StepWork) -> StepRecord:
    """Return the record of this lease's raise."""
    number = work.lease_number
    name = "raise" if number == 1 else f"raise.{number}"
    return work.journal.steps[name]


def count_devices(work: StepWork, node: str) -> int:
    """Return how many accelerators the ResourceSlices of a node list."""
    driver = work.world.catalogue.dra_chart.driver.value
    count = 0
    for row in work.world.cluster.list_objects("resourceslices"):
        spec = row["spec"]
        if spec.get("nodeName") == node and spec["driver"] == driver:
            for device in spec.get("devices") or []:
                kind = find_device_attribute(device, "resourceType").get("string", "")
                count += kind in {NEURON_DEVICE, ""}
    return count


def _describe_absence(work: StepWork) -> str:
    world = work.world
    fleet = observe_fleet(world.clients, world.guard, world.now())
    instances = (
        ", ".join(f"{instance.id} is {instance.state}" for instance in fleet.instances)
        or "EC2 lists none"
    )
    return (
        f"the node group is {fleet.status or 'unknown'}, {instances}; see"
        " docs/runbook-serving.md#not-ready"
    )


def label_for_serving(work: StepWork) -> StepProgress:
    """Give the servers' labels to the nodes of the compile, and wait for the nodes to have them.

    Raises:
        RunEndError: the nodes never get the label, or the lease is gone.
        ExternalError: AWS or Kubernetes failed.
    """
    world = work.world
    labels = choose_serving_admission(work).labels
    lease = observe_fleet(world.clients, world.guard, world.now()).lease
    if lease is None or lease.node_label != labels or not work.attempts:
        work.require_seat()
        try:
            relabel_nodes(
                world.clients, world.guard, run=work.lease_name, node_labels=labels, now=world.now()
            )
        except InputError as fault:
            raise RunEndError(f"the nodes are not labelled for the servers: {fault}") from fault
        work.result = {"since": world.now().isoformat()}
    work.restart_clock()  # from EKS's answer on: earlier tries are no time of the node
    nodes = list_fleet_nodes(work)
    waiting = [
        node for node in nodes if not labels.items() <= node["metadata"].get("labels", {}).items()
    ]
    if nodes and not waiting:
        return StepProgress(state="done", note=", ".join(labels))
    if work.count_elapsed_s() > LABEL_WAIT_S:
        minutes = LABEL_WAIT_S // 60
        raise RunEndError(
            f"no node has the labels {', '.join(labels)} {minutes} min after EKS was told of them"
        )
    return StepProgress(
        note=f"{len(waiting)} nodes wait for their labels", result=work.result, attempts=1
    )


def release_fleet(work: StepWork) -> bool:
    """Close the run's Jobs, set its servers to 0 and end its lease; return whether nothing is left.

    Callers repeat the call until it returns True. A lease that somebody else's stop ended is left
    to that stop. The wait for a pod that does not go is limited, because nobody pays for the pod
    after the lease.

    Raises:
        ExternalError: AWS or Kubernetes failed; the next call goes on.
    """
    world = work.world
    is_late = work.count_elapsed_s() > RELEASE_WAIT_S
    is_gone = True
    holder = _adopt_lease(work)
    # a run that never had a lease has no server up: what runs is of whoever has the fleet
    servers = () if holder and not work.leases else work.servers
    try:
        close_jobs(work)
        for arm in servers:
            world.cluster.scale_deployment(work.namespace, arm, 0)
            is_gone = is_gone and not list_unfinished_pods(work, arm)
    except ExternalError as fault:
        if not work.has_lease:
            raise
        # the money first: the lease ends even if Kubernetes fails
        world.log(f"servers and jobs are left to the next look: {fault.problem}")
        end_own_lease(work)
        return False
    if not is_gone and not is_late:
        return False
    if work.has_lease:
        end_own_lease(work)
    return not work.has_lease


def _adopt_lease(work: StepWork) -> str:
    """Write down a lease under which a look raised nodes but which the look could not write down.

    Returns:
        The name of a lease of somebody else, if that one has the fleet; else an empty text.
    """
    world = work.world
    if work.has_lease:
        return ""
    fleet = observe_fleet(world.clients, world.guard, world.now())
    fleet.require_known(
        "lease", where=world.environment.name, consequence="nothing is ended", change="try again"
    )
    lease = fleet.lease
    if lease is None:
        return ""
    if lease.run.partition(".")[0] != work.run:  # a run's id has no dot
        return lease.run
    if lease.run not in {span.name for span in work.leases}:
        _write_lease(work, lease)
    return ""


def end_own_lease(work: StepWork) -> None:
    """End the run's lease and count its nodes' time; wait and return if another stop is at work.

    Raises:
        ExternalError: AWS failed; the next call goes on.
    """
    world = work.world
    name = work.leases[-1].name

    def wait(span: timedelta) -> None:
        world.beat()
        world.pause(span.total_seconds())

    fleet = observe_fleet(world.clients, world.guard, world.now())
    fleet.require_known(
        "fence",
        "lease",
        "instances",
        where=world.environment.name,
        consequence="nothing is ended",
        change="try again",
    )
    if fleet.lease is not None and fleet.lease.run == name and not fleet.is_fenced:
        work.require_seat()
        end_lease(world.clients, world.guard, run=name, clock=world.now, wait=wait, log=world.log)
    elif fleet.own_instances and (fleet.lease is None or fleet.lease.run == name):
        wait(timedelta(seconds=10))  # a stop is at work: the reaper ends what is left
        return
    lease = work.leases[-1]
    is_late = work.count_elapsed_s() > RELEASE_WAIT_S
    fleet = replace(fleet, now=world.now())
    time = read_node_time(world.clients, world.guard, fleet, lease, is_last=is_late)
    span = msgspec.structs.replace(lease, empty_at=time.ended_at.isoformat(), doubt=time.doubt)
    work.journal.write_run(
        leases=(*work.leases[:-1], span),
        node_s=work.journal.run.node_s + time.paid_s,
    )
