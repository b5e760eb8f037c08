"""A store with the parts of a rehearsed run that need no account."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from rehearsal.cluster.store import ObjectStore
from rehearsal.run.node_bridge import NodeBridge, NodeInstance
from rehearsal.run.settings import RunFaults
from tandem.spec.catalogue import load_catalogue

START = datetime(2026, 11, 25, 12, tzinfo=UTC)
TAINT = {"key": "aws.amazon.com/neuron", "value": "present", "effect": "NO_SCHEDULE"}


@dataclass
class SmallWorld:
    """A store, its clock, and the faults in force."""

    moment: datetime = START
    faults: RunFaults = field(default_factory=RunFaults)

    def __post_init__(self) -> None:
        self.store = ObjectStore(lambda: self.moment)
        types = load_catalogue().instances.instances
        self.bridge = NodeBridge(store=self.store, instance_types=types, read_faults=lambda: self.faults)

    def wait(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)

    def nodes(self) -> list[dict]:
        return self.store.list_objects("nodes")

    def devices(self) -> list[dict]:
        return [device for row in self.store.list_objects("resourceslices") for device in row["spec"]["devices"]]


@pytest.fixture
def small() -> SmallWorld:
    return SmallWorld()


@pytest.fixture
def instance() -> Callable[..., NodeInstance]:
    def build(state="running", type="trn2.48xlarge", name="ip-10-0-0-1", **labels) -> NodeInstance:  # noqa: A002
        group = {"workload": "neuron-inference"} | {key.replace("__", "."): value for key, value in labels.items()}
        agent = {"key": "s3.csi.aws.com/agent-not-ready", "effect": "NO_EXECUTE"}
        return NodeInstance(
            id="i-1", name=name, type=type, zone="us-east-2c", state=state, launched_at=START, group="trn2",
            labels=group, taints=(TAINT, agent),
        )  # fmt: skip

    return build
