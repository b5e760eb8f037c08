"""The times of a rehearsed cluster's control plane: how long a cause takes to have its effect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterTiming:
    """Seconds between a cause and its effect; the paths are those of Kubernetes 1.36.2.

    Args:
        claim_s: from a pod until the resource-claim controller has made its claims. A guess: a
            real one takes fractions of a second, and longer when the controller is busy.
        allocation_s: from a claim until the scheduler allocates it and binds the pod. A guess.
        node_grace_s: from the loss of a node until its Ready condition is Unknown. The default of
            --node-monitor-grace-period (pkg/controller/nodelifecycle/config/v1alpha1/defaults.go).
            A real one counts from the last heartbeat, so it takes 40 to 55 s.
        cloud_look_s: from Unknown until the Node object goes, if the cloud no longer has the
            instance. One --node-monitor-period (cloud-provider/config/v1alpha1/defaults.go).
        toleration_s: how long a pod stays on an unreachable node (tolerationSeconds), whole
            seconds (plugin/pkg/admission/defaulttolerationseconds/admission.go).
        orphan_s: from the end of a Node object until the pods on it are removed: quarantine of
            40 s and a look each 20 s (pkg/controller/podgc/gc_controller.go).
        job_end_s: from the condition that names a Job's end until the one that ends it. One
            SyncJobBatchPeriod (pkg/controller/job/job_controller.go).
    """

    claim_s: float = 1.0
    allocation_s: float = 1.0
    node_grace_s: float = 50.0
    cloud_look_s: float = 5.0
    toleration_s: float = 300.0
    orphan_s: float = 60.0
    job_end_s: float = 1.0


INSTANT = ClusterTiming(
    claim_s=0,
    allocation_s=0,
    node_grace_s=0,
    cloud_look_s=0,
    toleration_s=0,
    orphan_s=0,
    job_end_s=0,
)
