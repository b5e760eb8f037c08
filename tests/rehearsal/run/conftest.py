"""A store with the parts of a rehearsed run that need no account."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from hand_made_account import TAINT
from product_change import write_change
from run_worlds import open_account, open_lives

from rehearsal.cluster.cluster import RehearsalCluster
from rehearsal.cluster.pods import VirtualPods
from rehearsal.run import pod_programs
from rehearsal.run.node_bridge import NodeBridge, NodeInstance
from rehearsal.run.settings import LIVE_TIMING, RunFaults
from tandem.declarations.catalogue import load_catalogue

START = datetime(2026, 11, 25, 12, tzinfo=UTC)
STARTUP_TAINT = {"key": "s3.csi.aws.com/agent-not-ready", "effect": "NoExecute"}


@dataclass
class SmallWorld:
    """A store, its clock, and the faults in force."""

    moment: datetime = START
    faults: RunFaults = field(default_factory=RunFaults)

    def __post_init__(self) -> None:
        clock = SimpleNamespace(now=lambda: self.moment)
        self.cluster = RehearsalCluster(clock, VirtualPods, timing=LIVE_TIMING)
        self.store = self.cluster.store
        types = load_catalogue().instances.instances
        self.bridge = NodeBridge(cluster=self.cluster, instance_types=types)

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
def small():
    return SmallWorld()


@pytest.fixture
def instance():
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
def account(tmp_path_factory):
    """An account whose experiment asks a table of one's own."""
    with open_account(tmp_path_factory.mktemp("account"), ["table.csv"]) as account:
        yield account


@pytest.fixture(scope="session")
def lives(account, tmp_path_factory):
    """One world of the post's two servers, for lives one after another."""
    with open_lives(account, tmp_path_factory.mktemp("world")) as lives:
        yield lives


@pytest.fixture
def change_runner(lives, tmp_path):
    """Put a runner with a change of the product in the place of the one at work; at the end, one
    without."""
    with pytest.MonkeyPatch.context() as patch:

        def change(source: str) -> None:
            for name, value in write_change(tmp_path / "change", source).items():
                patch.setitem(pod_programs._LOCAL_VARIABLES, name, value)
            lives.replace_runner()

        yield change
    lives.replace_runner()
