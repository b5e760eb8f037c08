"""Leftovers of runs that are over: Jobs, and servers that are up without a lease.

A runner that froze directly before a call makes it when it wakes, perhaps after the run's end has
seen that nothing runs any more. So the live runner looks again at each beat. Invariant: a Job
counts as a run's by its label alone, and only one run is at work at a time. Without a lease there
is no node, so no server at 1 is in use; with one, servers are whoever's that has it.
"""

from __future__ import annotations

from collections.abc import Collection

from tandem.declarations import names
from tandem.declarations.experiment import Experiment
from tandem.guard.lease import read_pointer
from tandem.guard.values import convert_call_errors
from tandem.run.cluster import RefusedCallError
from tandem.run.jobs import RUN_LABEL
from tandem.run.journal import RETRY_ADVICE
from tandem.run.run_world import RunWorld
from tandem.shell_command import quote_command


def remove_leftovers(world: RunWorld, active_run: str, parked_experiments: Collection[str]) -> None:
    """Delete all Jobs but the active run's; without one, set servers to 0 if nobody has a lease.

    Args:
        world: of the runner.
        active_run: the run at work; empty if there is none.
        parked_experiments: whose servers were at 0 at the end of a run.

    Raises:
        ExternalError: AWS or Kubernetes failed.
    """
    for experiment in world.experiments.values():
        _delete_jobs(world, names.experiment_namespace(experiment), active_run)
        if not active_run and experiment.name in parked_experiments:
            _park_servers(world, experiment)


def delete_run_jobs(world: RunWorld, experiment: str, run: str) -> str:
    """Delete the Jobs of a run whose experiment the environment hosts no longer.

    Returns:
        The command that deletes them, if Kubernetes refuses: the runner's rights in a namespace go
            with its experiment.
        Else an empty text.

    Raises:
        ExternalError: Kubernetes did not answer.
    """
    namespace = f"{names.NAMESPACE_PREFIX}{experiment}"
    try:
        for job in world.cluster.list_objects("jobs", namespace, {RUN_LABEL: run}):
            world.cluster.delete_job(namespace, job["metadata"]["name"])
    except RefusedCallError:
        return quote_command(
            "kubectl", "-n", namespace, "delete", "jobs", "-l", f"{RUN_LABEL}={run}"
        )
    return ""


def _delete_jobs(world: RunWorld, namespace: str, active_run: str) -> None:
    for job in world.cluster.list_objects("jobs", namespace):
        metadata = job["metadata"]
        run = (metadata.get("labels") or {}).get(RUN_LABEL, active_run)
        if run != active_run and "deletionTimestamp" not in metadata:
            world.cluster.delete_job(namespace, metadata["name"])
            world.log(f"Job {namespace}/{metadata['name']} is deleted: its run {run} is over")


def _park_servers(world: RunWorld, experiment: Experiment) -> None:
    namespace = names.experiment_namespace(experiment)
    deployments = {
        variant.name: world.cluster.get_object("deployments", namespace, variant.name)
        for variant in experiment.all_variants()
    }
    servers = [
        name for name, body in deployments.items() if body and body["spec"].get("replicas", 1)
    ]
    if not servers:
        return
    with convert_call_errors("reading whose fleet it is", world.guard.bucket, RETRY_ADVICE):
        if read_pointer(world.clients, world.guard).run is not None:
            return
    for name in servers:
        world.cluster.scale_deployment(namespace, name, 0)
        world.log(
            f"server {namespace}/{name} is set to 0: no run is at work and nobody has a lease"
        )
