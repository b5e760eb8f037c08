"""A laptop's world for one experiment: account, cluster with rendered manifests, hub, and pods.

Invariant: no part of the world outlives `stop`, and the world shows AWS only as the local endpoint
lists it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from botocore.exceptions import BotoCoreError, ClientError

from rehearsal.aws.capacity_block import CapacityBlock
from rehearsal.aws.cdk_cli import CdkCli, read_stacks
from rehearsal.aws.endpoint import AwsEndpoint
from rehearsal.aws.sandbox import (
    FICTITIOUS_ACCOUNT,
    EnvironmentSandbox,
    create_prerequisites,
    create_sandbox,
)
from rehearsal.cluster.cluster import RehearsalCluster, WallClock
from rehearsal.cluster.live_cluster import LiveCluster
from rehearsal.cluster.process_pods import ProcessPods
from rehearsal.cluster.server import ClusterFault, ClusterServer, ClusterUser
from rehearsal.cluster.store import Object, ObjectStore, format_time
from rehearsal.cluster.tokens import BoundTokens
from rehearsal.run.fault_injector import FaultInjector
from rehearsal.run.manifests import apply_manifests, build_users, read_manifests
from rehearsal.run.model_hub import serve_hub, write_checkpoints
from rehearsal.run.node_bridge import ALIVE_STATES, NodeBridge, NodeInstance, read_instances
from rehearsal.run.pod_programs import COMPONENT_LABEL, KNOBS, PROGRAMS, TRUTH, PodPrograms
from rehearsal.run.settings import RehearsalSettings, RunFaults
from rehearsal.runtime.installation import install_programs
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.workspace import load_workspace
from tandem.ops.guard_config import build_guard_config
from tandem.run.run_keys import RUNNER_KEY

BRIDGE_S = 1.0
# the CLI looks at a stack every five seconds: several at once save a third
DEPLOY_FLAGS = ("--concurrency", "4")
BLOCK_LENGTH = timedelta(days=1)
RUNNER_WAIT_S = 90.0  # two seconds on an idle machine
LOG_CHARACTERS = 4000
# folders of a world, next to those of its pods
MANIFESTS = "manifests"
HUB = "hub"
ADMIN_TOKEN = "rehearsed:admin"  # noqa: S105 - of a cluster of this machine
_ALL_RULE: Mapping[str, Any] = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalAccount:
    """A made-up account at a local endpoint, and the declared files that it is deployed from."""

    endpoint: AwsEndpoint
    sandbox: EnvironmentSandbox

    @classmethod
    def create(cls, name: str, environments: Path, experiments: Path, folder: Path) -> Self:
        """Start an endpoint for an environment's copy; deploy nothing; the caller stops it.

        Raises:
            SpecError: the environment is not there or refused.
            EndpointError: the endpoint does not start.
        """
        sandbox = create_sandbox(name, environments, experiments, folder)
        sandbox.edit(_date_block)
        endpoint = AwsEndpoint(
            account=FICTITIOUS_ACCOUNT,
            region=sandbox.environment.region,
            state_dir=folder / "endpoint",
        ).start()
        create_prerequisites(sandbox, endpoint.client)
        account = cls(endpoint=endpoint, sandbox=sandbox)
        account.buy_block()
        return account

    def buy_block(self, **changes: Any) -> None:
        """Let EC2 know the environment's Capacity Block as declared, or with other fields.

        Args:
            changes: fields of `CapacityBlock`, as after a purchase, an extension or an early end.
        """
        capacity = self.sandbox.environment.capacity
        if (
            capacity.kind == "capacity-block"
            and capacity.block is not None
            and capacity.reservation_id is not None
        ):
            block = CapacityBlock(
                starts=capacity.block.starts, ends=capacity.block.ends, nodes=capacity.nodes
            )
            self.endpoint.set_blocks({capacity.reservation_id: replace(block, **changes)})

    def deploy(self, folder: Path) -> str:
        """Bootstrap and deploy the environment with the CDK CLI; return its stacks.

        Raises:
            CdkError: the CLI failed.
        """
        cdk = CdkCli(endpoint=self.endpoint, sandbox=self.sandbox, work_folder=folder)
        cdk.bootstrap(self.sandbox.environment.bootstrap.qualifier)
        cdk.deploy(*DEPLOY_FLAGS)
        return ", ".join(read_stacks(self.endpoint, self.sandbox.name))

    def run_tandem(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the real command line with this account's credentials and files.

        Args:
            words: of the command.
            options: of subprocess.run.
        """
        command = [sys.executable, "-m", "tandem", *words, *self.list_file_options()]
        return subprocess.run(
            command, env=self.build_variables(), text=True, check=False, **options
        )

    def list_file_options(self) -> list[str]:
        """Return the options that make a command read the copied files."""
        return [
            "--environments",
            str(self.sandbox.environments),
            "--experiments",
            str(self.sandbox.experiments),
        ]

    def build_variables(self) -> dict[str, str]:
        """Return the variables for work in this account, without the caller's own AWS settings."""
        own_variables = {
            name: value for name, value in os.environ.items() if not name.startswith("AWS_")
        }
        return own_variables | self.endpoint.client_environment(
            self.sandbox.environments.parent / "home"
        )


def _date_block(document: dict[str, Any]) -> None:
    """Date the environment's Capacity Block, if it has one, to an hour ago."""
    if document["capacity"]["kind"] == "capacity-block":
        begin = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
        moments = {"starts": begin, "ends": begin + BLOCK_LENGTH}
        document["capacity"]["block"] = {
            name: format_time(moment) for name, moment in moments.items()
        }


class RunWorld:
    """All that a run needs, until `stop`. First call `write_inputs`, also during a deploy.

    Args:
        account: where the environment is deployed.
        settings: of the rehearsal.
        folder: of manifests, pods and truth logs; the files of pods stay there.

    Attributes:
        live: the cluster and its API.
        pods: its processes.
        skipped: kinds of the manifests that the cluster has no place for, with their number.
    """

    def __init__(
        self,
        account: RehearsalAccount,
        settings: RehearsalSettings,
        folder: Path,
    ) -> None:
        self.account = account
        self.settings = settings
        self.folder = folder
        self.store = ObjectStore(WallClock().now)
        self._api_faults = list[ClusterFault]()
        workspace = load_workspace(
            account.sandbox.environments, account.sandbox.experiments, (settings.environment,)
        )
        self._experiment = workspace.experiments[settings.experiment].record
        self._guard = build_guard_config(account.sandbox.environment)
        self._catalogue = load_catalogue()
        self._stop_event = threading.Event()
        self._stack = ExitStack()
        self._restart_thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start everything."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        self.stop()

    def stop(self) -> None:
        """Stop everything but the account."""
        self._stop_event.set()
        self._stack.close()

    def set_faults(self, faults: RunFaults) -> None:
        """Replace all faults by these, once the endpoint is there again."""
        if self._restart_thread is not None:
            self._restart_thread.join()
        self.settings = replace(self.settings, faults=faults)
        self.live.call(self._expect_faults)

    def has_fault_come(self) -> bool:
        """Tell whether the faults' moment came; if it took the endpoint away, wait for it."""
        is_done = self.live.call(lambda: self._injector.is_done)
        if is_done and self._restart_thread is not None:
            self._restart_thread.join()
        return is_done

    def count_killed_pods(self) -> int:
        """Return how many pods the current faults have killed."""
        return self.live.call(lambda: self._injector.killed_pods)

    def list_fleet(self) -> list[NodeInstance]:
        """Return the accelerator instances that EC2 lists, without ended ones."""
        rows = read_instances(self.account.endpoint.client, self._guard.cluster)
        return [
            row for row in rows if row.group == self._guard.node_group and row.state != "terminated"
        ]

    def has_object(self, key: str) -> bool:
        """Tell whether the environment's bucket has an object, such as the fence's."""
        s3 = self.account.endpoint.client("s3")
        prefix = f"{self._guard.prefix}{key}"
        return bool(s3.list_objects_v2(Bucket=self._guard.bucket, Prefix=prefix)["KeyCount"])

    def wait_for_runner(self) -> None:
        """Wait until the runner reports that it lives.

        Raises:
            RuntimeError: the runner does not report; the end of its log is in the message.
        """
        deadline_s = time.monotonic() + RUNNER_WAIT_S
        while not self.has_object(RUNNER_KEY):
            if time.monotonic() > deadline_s:
                raise RuntimeError(
                    f"the runner has not written {RUNNER_KEY} after {RUNNER_WAIT_S:g}"
                    f" s:\n{self.read_logs()}"
                )
            time.sleep(BRIDGE_S)

    def read_logs(self) -> str:
        """Return the log ends of the runner's containers, with why a pod does not run."""
        pods = self.live.call(
            lambda: self.store.list_objects("pods", label_selector=f"{COMPONENT_LABEL}=runner")
        )
        rows = [
            row
            for pod in pods
            for row in pod.get("status", {}).get("conditions", [])
            if "message" in row
        ]
        names = [(pod, box["name"]) for pod in pods for box in pod["spec"]["containers"]]
        logs = [self.pods.read_log(pod, name)[-LOG_CHARACTERS:] for pod, name in names]
        return "\n".join([*(row["message"] for row in rows), *logs])

    def count_node_minutes(self) -> float:
        """Return the minutes for which accelerator instances were there."""
        return self.live.call(self._bridge.count_node_s) / 60

    def build_kubeconfig(self, token: str = ADMIN_TOKEN, namespace: str = "default") -> Object:
        """Return the kubeconfig for a client of the cluster."""
        return self.live.build_kubeconfig(token, namespace)

    def build_tokens(self) -> BoundTokens:
        """Return the tokens of the cluster's pods."""
        return BoundTokens(self.store, self.settings.token_s, self._has_kubelet, [ADMIN_TOKEN])

    def open_cluster(
        self, bodies: list[Object], tokens: BoundTokens, actions: list[Callable[[], None]]
    ) -> tuple[RehearsalCluster, LiveCluster]:
        """Return the cluster and its API, which is at work from its `__enter__` to its `__exit__`.

        Args:
            bodies: the manifests, for the users' rights.
            tokens: of the cluster's pods.
            actions: called at each look of the cluster.
        """
        users = build_users(bodies) | {ADMIN_TOKEN: ClusterUser("admin", cluster_rules=[_ALL_RULE])}
        cluster = RehearsalCluster(
            WallClock(), lambda _: self.pods, self.store, self.settings.choose_timing()
        )
        server = ClusterServer(
            self.store, users, self.pods.read_log, cluster.has_kubelet, tokens.find_account
        )
        server.faults = self._api_faults
        return cluster, LiveCluster(cluster, server, actions)

    def apply_manifests(self, bodies: list[Object]) -> Counter[str]:
        """Put the manifests into the cluster; return how many of each kind it has no place for."""
        return self.live.call(lambda: apply_manifests(self.store, bodies))

    def write_inputs(self) -> None:
        """Write manifests, simulator knobs, stand-ins and checkpoints, without a deployed account.

        Raises:
            RuntimeError: a command of Tandem failed.
        """
        settings = self.settings
        experiment = self._experiment
        self._run_quietly("render", settings.environment, "--out", str(self.folder / MANIFESTS))
        scale = ("--time-scale", str(settings.time_scale))
        self._run_quietly(
            "simulate",
            "--experiment",
            settings.experiment,
            "--write",
            str(self.folder / KNOBS),
            *scale,
        )
        install_programs(
            self.folder / PROGRAMS, "nxdi-v0" if experiment.runtime == "nxdi-v0" else "native"
        )
        (self.folder / TRUTH).mkdir()
        write_checkpoints(experiment, self._catalogue, self.folder / HUB)

    def _start(self) -> None:
        settings = self.settings
        endpoint = self.account.endpoint
        self._store_prompts()
        hub_variables = self._stack.enter_context(serve_hub(self.folder / HUB))
        bodies = read_manifests(self.folder / MANIFESTS)
        eks = endpoint.client("eks")
        associations = eks.list_pod_identity_associations(clusterName=self._guard.cluster)[
            "associations"
        ]
        tokens = self.build_tokens()
        programs = PodPrograms(
            store=self.store,
            identities=frozenset((row["namespace"], row["serviceAccount"]) for row in associations),
            aws_variables=endpoint.client_environment(self.folder),
            hub_variables=hub_variables,
            folder=self.folder,
            build_kubeconfig=self.build_kubeconfig,
            s3=endpoint.client("s3"),
            read_faults=self._read_faults,
            poll_s=settings.poll_s,
            tokens=tokens,
        )
        self.pods = ProcessPods(self.store, self.folder / "pods", programs, settings.backoff_scale)
        self._stack.callback(self.pods.close)
        self._injector = FaultInjector(
            store=self.store,
            pods=self.pods,
            api_faults=self._api_faults,
            faults=settings.faults,
            drain_node=self._drain_node,
            terminate_instances=self._terminate_instances,
            restart_endpoint=self._restart_endpoint,
        )
        actions = [self._injector.act_if_due, tokens.refresh]
        self._cluster, live = self.open_cluster(bodies, tokens, actions)
        self.live = self._stack.enter_context(live)
        types = self._catalogue.instances.instances
        self._bridge = NodeBridge(cluster=self._cluster, instance_types=types)
        self._look_at_instances()  # the system nodes are there before anything needs one
        self.skipped = self.apply_manifests(bodies)
        thread = threading.Thread(target=self._follow_instances, daemon=True, name="nodes")
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._stop_event.set)

    def _store_prompts(self) -> None:
        """Store the experiment's files of prompts as a person does, those that are at hand."""
        for suite in self._experiment.list_suite_files():
            path = self.account.sandbox.project / suite.file
            if not path.is_file():
                continue
            words = ["artifacts", "stage-suite", str(path), "--env", self.settings.environment]
            self._run_quietly(*words, *suite.list_flags())

    def _has_kubelet(self, name: str) -> bool:
        return self._cluster.has_kubelet(name)

    def _drain_node(self, name: str) -> None:
        self._cluster.drain_node(name)

    def _read_faults(self) -> RunFaults:
        return self.settings.faults

    def _run_quietly(self, *words: str) -> None:
        result = self.account.run_tandem(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode:
            raise RuntimeError(
                f"tandem {words[0]} ended with code {result.returncode}:\n{result.stdout.strip()}"
            )

    def _look_at_instances(self) -> None:
        instances = read_instances(self.account.endpoint.client, self._guard.cluster)
        self.live.call(lambda: self._bridge.write_nodes(instances))

    def _follow_instances(self) -> None:
        while not self._stop_event.wait(BRIDGE_S):
            try:
                self._look_at_instances()
            except (BotoCoreError, ClientError, RuntimeError):
                continue  # the endpoint is slow or restarts: keep the nodes as they are

    def _expect_faults(self) -> None:
        self._cluster.timing = self.settings.choose_timing()
        self._injector.expect(self.settings.faults)

    def _terminate_instances(self) -> None:
        """End the accelerator instances, and lose their nodes without a drain."""
        rows = [row for row in self.list_fleet() if row.state in ALIVE_STATES]
        if rows:
            ids = [row.id for row in rows]
            self.account.endpoint.client("ec2").terminate_instances(InstanceIds=ids)
        nodes = {node["metadata"]["name"] for node in self.store.list_objects("nodes")}
        for name in nodes.intersection(row.name for row in rows):
            self._cluster.lose_node(name)

    def _restart_endpoint(self, down_s: float) -> None:
        def act() -> None:
            self.account.endpoint.stop()
            self._stop_event.wait(down_s)
            self.account.endpoint.start()

        self._restart_thread = threading.Thread(target=act, daemon=True, name="endpoint")
        self._restart_thread.start()
        self._stack.callback(self._restart_thread.join)
