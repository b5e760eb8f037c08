"""Settings of a rehearsed run, and its faults.

Invariant: without a fault all goes well. Each fault is a plain field, and a test shows its effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rehearsal.cluster.timing import ClusterTiming

# what every pod and Job waits for is shorter, as the runner's pauses are; a lost node takes its
# real time
LIVE_TIMING = ClusterTiming(claim_s=0.5, allocation_s=0.5, job_end_s=0.2)
TOKEN_S = 60.0  # a tenth of the shortest life that a real API server gives


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFaults:
    """Faults, from the start or at a moment.

    Args:
        late_claim_s: seconds more until a claim is allocated.
        crashing_server: an arm whose server ends with exit code 1 as soon as it starts.
        moment: the component or the name (app.kubernetes.io/component, /name) whose first running
            pod is the moment of all that follows.
        moment_s: seconds after that.
        second_replica: an arm that is scaled to 2.
        edited_server: an arm whose server's last argument is changed.
        killed_component: the component or the name whose containers get SIGKILL.
        is_node_lost: the accelerator instances are terminated without notice to anybody: their
            processes are gone at once, and the API says Ready until the grace is over.
        is_node_drained: the accelerator nodes are cordoned and their pods evicted, as `kubectl
            drain` does.
        uncordon_s: seconds after the drain until the nodes take pods again; 0 for never.
        endpoint_down_s: seconds for which the local AWS endpoint is gone. The endpoint ends by
            SIGTERM and its state survives, as AWS keeps acknowledged changes: a client sees a
            broken connection, then refused ones.
        api_status: the status that the Kubernetes API answers instead, as often as `api_calls`
            says.
    """

    late_claim_s: float = 0.0
    crashing_server: str = ""
    moment: str = "bench"
    moment_s: float = 0.0
    second_replica: str = ""
    edited_server: str = ""
    killed_component: str = ""
    is_node_lost: bool = False
    is_node_drained: bool = False
    uncordon_s: float = 3.0
    endpoint_down_s: float = 0.0
    api_status: int = 0
    api_calls: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalSettings:
    """Settings of a rehearsal.

    Args:
        environment, experiment: as declared.
        time_scale: divides every time of the simulated servers.
        poll_s: seconds between the runner's looks; its other pauses are shortened as much.
        backoff_scale: factor on the seconds between a container's restarts.
        timing: of the cluster's control plane.
        token_s: life of a pod's token, in seconds.
        faults: the faults.
    """

    environment: str
    experiment: str
    time_scale: float = 5.0
    poll_s: float = 0.5
    backoff_scale: float = 0.1
    timing: ClusterTiming = LIVE_TIMING
    token_s: float = TOKEN_S
    faults: RunFaults = field(default_factory=RunFaults)

    def choose_timing(self) -> ClusterTiming:
        """Return the control plane's times with the faults in force."""
        return replace(
            self.timing, allocation_s=self.timing.allocation_s + self.faults.late_claim_s
        )
