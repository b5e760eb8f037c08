"""A store with the parts of a rehearsed run that need no account."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from product_change import write_change
from run_lives import TASK, RunLives

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.run import pod_programs
from rehearsal.run.node_bridge import NodeBridge, NodeInstance
from rehearsal.run.settings import LIVE_TIMING, RehearsalSettings, RunFaults
from rehearsal.run.world import RehearsalAccount, RunWorld
from stacks.fleet import USER_DATA
from tandem.artifacts.archive import build_archive
from tandem.ops.guard_config import build_guard_config
from tandem.spec import names
from tandem.spec.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[3]
START = datetime(2026, 11, 25, 12, tzinfo=UTC)
TAINT = {"key": "aws.amazon.com/neuron", "value": "present", "effect": "NO_SCHEDULE"}
STARTUP_TAINT = {"key": "s3.csi.aws.com/agent-not-ready", "effect": "NoExecute"}


@dataclass
class SmallWorld:
    """A store, its clock, and the faults in force."""

    moment: datetime = START
    faults: RunFaults = field(default_factory=RunFaults)

    def __post_init__(self) -> None:
        clock = SimpleNamespace(now=lambda: self.moment)
        self.cluster = RehearsalCluster(clock, lambda now: VirtualPods(now, {}), timing=LIVE_TIMING)
        self.store = self.cluster.store
        types = load_catalogue().instances.instances
        self.bridge = NodeBridge(
            cluster=self.cluster, instance_types=types, read_faults=lambda: self.faults
        )

    def wait(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)

    def nodes(self) -> list[dict]:
        return self.store.list_objects("nodes")

    def devices(self) -> list[dict]:
        return [
            device
            for row in self.store.list_objects("resourceslices")
            for device in row["spec"]["devices"]
        ]


@pytest.fixture
def small() -> SmallWorld:
    return SmallWorld()


@pytest.fixture
def instance() -> Callable[..., NodeInstance]:
    def build(state="running", type="trn2.48xlarge", name="ip-10-0-0-1", **labels) -> NodeInstance:  # noqa: A002
        group = {"workload": "neuron-inference"} | {
            key.replace("__", "."): value for key, value in labels.items()
        }
        return NodeInstance(
            id="i-1",
            name=name,
            type=type,
            zone="us-east-2c",
            state=state,
            launched_at=START,
            group="trn2",
            labels=group,
            taints=(TAINT,),
            registered_taints=({**TAINT, "effect": "NoSchedule"}, STARTUP_TAINT),
        )

    return build


@pytest.fixture(scope="session")
def account(tmp_path_factory) -> Iterator[RehearsalAccount]:
    """An account with what a run needs of post-us-east-2, made by hand: a deploy takes the CDK half
    a minute."""
    folder = tmp_path_factory.mktemp("account")
    experiments = shutil.copytree(ROOT / "experiments", folder / "declared")
    tasks, digest = write_task(folder / TASK)
    with (experiments / "post.yaml").open("a") as file:
        file.write(f"quality: [{{name: {TASK}, sha256: {digest}}}]\n")
    account = RehearsalAccount.create("post-us-east-2", ROOT / "environments", experiments, folder)
    account.sandbox.edit(
        lambda document: document["capacity"].update(
            kind="on-demand", reservation_id=None, block=None
        )
    )
    try:
        make_account(account.endpoint.client, account.sandbox.environment)
        assert (
            account.run_tandem(
                "artifacts", "stage-task", str(tasks), "--env", "post-us-east-2"
            ).returncode
            == 0
        )
        yield account
    finally:
        account.endpoint.stop()


@pytest.fixture(scope="session")
def lives(account, tmp_path_factory) -> Iterator[RunLives]:
    """One world of the post's two servers, for lives one after another."""
    settings = RehearsalSettings(environment="post-us-east-2", experiment="post", time_scale=25)
    world = RunWorld(account, settings, tmp_path_factory.mktemp("world"))
    world.write_inputs()
    with world:
        world.wait_for_runner()
        yield RunLives(world, tmp_path_factory.mktemp("results"))


@pytest.fixture
def change_runner(lives, tmp_path) -> Iterator[Callable[[str], None]]:
    """Put a runner with a change of the product in the place of the one at work; at the end, one
    without."""
    with pytest.MonkeyPatch.context() as patch:

        def change(source: str) -> None:
            for name, value in write_change(tmp_path / "change", source).items():
                patch.setitem(pod_programs._LOCAL_VARIABLES, name, value)
            lives.replace_runner()

        yield change
    lives.replace_runner()


def write_task(folder: Path) -> tuple[Path, str]:
    """Write a task of 200 sums; return its folder and the digest of its set."""
    folder.mkdir()
    items = [
        {
            "item": f"{number}",
            "prompt": f"What is {number} + 7? Answer with the number alone.",
            "answer": f"{number + 7}",
        }
        for number in range(200)
    ]
    (folder / "items.jsonl").write_text("".join(f"{json.dumps(item)}\n" for item in items))
    archive = build_archive({"items.jsonl": (folder / "items.jsonl").read_bytes()})
    return folder, hashlib.sha256(archive).hexdigest()


def make_account(client, environment, *, has_fleet: bool = True) -> None:
    """Make bucket, cluster, node groups, associations, and what stops a fleet."""
    guard = build_guard_config(environment)
    role = f"arn:aws:iam::{environment.account}:role/any"
    where = {"LocationConstraint": environment.region}
    client("s3").create_bucket(Bucket=guard.bucket, CreateBucketConfiguration=where)
    eks = client("eks")
    eks.create_cluster(name=guard.cluster, roleArn=role, resourcesVpcConfig={})
    make_node_group(client, environment, "system", "m7i.xlarge", 2, {"workload": "system"})
    if has_fleet:
        data = {"UserData": base64.b64encode(USER_DATA.encode()).decode()}
        template = client("ec2").create_launch_template(
            LaunchTemplateName="fleet", LaunchTemplateData=data
        )
        reference = {"id": template["LaunchTemplate"]["LaunchTemplateId"], "version": "1"}
        fleet = {"launchTemplate": reference, "taints": [TAINT]}
        make_node_group(client, environment, guard.node_group, "trn2.48xlarge", 0, {}, **fleet)
    accounts = [
        ("tandem-post", f"tandem-{name}") for name in ("stage", "compile", "serve", "bench")
    ]
    for namespace, service_account in [("runner-system", "runner"), *accounts]:
        eks.create_pod_identity_association(
            clusterName=guard.cluster,
            namespace=namespace,
            serviceAccount=service_account,
            roleArn=role,
        )
    client("scheduler").create_schedule_group(Name=guard.schedule_group)
    client("sns").create_topic(Name=names.topic_name(environment))
    client("sqs").create_queue(QueueName=names.dead_letter_queue_name(environment))
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    client("iam").create_role(
        RoleName=names.scheduler_role_name(environment), AssumeRolePolicyDocument=trust
    )
    client("lambda").create_function(
        FunctionName=names.guard_function_name(environment, "reap"),
        Role=role,
        Runtime="python3.13",
        Handler="h.h",
        Code={"ZipFile": b"PK\x05\x06" + bytes(18)},
    )
    client("budgets").create_budget(
        AccountId=environment.account,
        Budget={
            "BudgetName": names.budget_name(environment),
            "BudgetLimit": {"Amount": "2000", "Unit": "USD"},
            "TimeUnit": "MONTHLY",
            "BudgetType": "COST",
        },
    )


def make_node_group(
    client,
    environment,
    name: str,
    instance_type: str,
    size: int,
    labels: dict[str, str],
    **fields: Any,
) -> None:
    """Make a node group of so many nodes."""
    guard = build_guard_config(environment)
    role = f"arn:aws:iam::{environment.account}:role/any"
    client("eks").create_nodegroup(
        clusterName=guard.cluster,
        nodegroupName=name,
        subnets=["subnet-1"],
        nodeRole=role,
        labels=labels,
        instanceTypes=[instance_type],
        scalingConfig={"minSize": size, "desiredSize": size, "maxSize": 2},
        tags=names.resource_tags(environment),
        **fields,
    )
