"""What the doctor asks: reads alone, each in the policy that it prints, and each may be denied."""

from __future__ import annotations

import json
import re

import pytest
from committed import ROOT, workspace
from doctor_world import ACCOUNT, REGION, World, bucket, cluster, existing, node_group, schedule
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, FaultRule

from tandem.declarations.environment import (
    AlarmSubscription,
    CdkBootstrap,
    ClusterAccess,
    HubSettings,
    ObservabilitySettings,
)
from tandem.ops.doctor.runner import CHECKS
from tandem.ops.people.policies import build_command_policy
from tandem.ops.people.rights import list_command_calls

pytestmark = pytest.mark.proof

DOCTOR_CALLS = sorted(list_command_calls("doctor"))
SIGNING = {"servicequotas": "service-quotas"}
READS = re.compile(r"(Describe|Get|Head|List)[A-Z]")
# what a HEAD denied makes necessary
BESIDE = {"ListBuckets": (FaultRule(operation="HeadBucket", fault=ACCESS_DENIED_FAULT),)}


@pytest.fixture
def demanding(world):
    """An environment for which every call is necessary."""
    host = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/mirror"
    admins = tuple(
        f"arn:aws:iam::{ACCOUNT}:{name}" for name in ("role/PlatformAdmin", "user/somebody")
    )
    subscription = AlarmSubscription(protocol="email", endpoint="a@b.example")
    world.change(
        network=existing(
            "vpc-00000000", ("subnet-00000000", "use2-az1"), ("subnet-00000001", "use2-az3")
        ),
        bootstrap=CdkBootstrap(permissions_boundary="TeamBoundary"),
        hub=HubSettings(token_secret="a/token"),  # noqa: S106 - its name
        observability=ObservabilitySettings(alarm_subscriptions=(subscription,)),
        cluster={
            "access": ClusterAccess.model_construct(
                admin=admins, operator=(), engineer=(), viewer=()
            )
        },
        registry_mirrors={"public.ecr.aws": host},
        artifacts={
            "kms_key_arn": (
                f"arn:aws:kms:{REGION}:{ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef"
            )
        },
    )
    cluster(world)
    node_group(world)
    bucket(world)
    schedule(world, "strange")
    world.facts.quotas = {}
    return world


def both(world: World) -> None:
    """Examine as a block, then as spot, which has a quota."""
    world.lines()
    world.change(capacity={"kind": "spot", "reservation_id": None, "block": None})
    world.lines()


def test_what_is_asked_is_exactly_what_is_declared(demanding):
    demanding.proxy.use(FaultRule(operation="HeadBucket", fault=ACCESS_DENIED_FAULT))
    both(demanding)
    calls = {
        (SIGNING.get(request.service, request.service), request.operation)
        for request in demanding.proxy.log
    }
    assert calls == {(call.service, call.operation) for call in DOCTOR_CALLS}


def test_every_declared_call_only_reads():
    assert [call.operation for call in DOCTOR_CALLS if not READS.match(call.operation)] == []


@pytest.mark.parametrize(
    "call", [call for call in DOCTOR_CALLS if call.action], ids=lambda call: call.operation
)
def test_a_denied_call_is_unknown_and_names_what_to_allow(demanding, call):
    denied = FaultRule(operation=call.operation, fault=ACCESS_DENIED_FAULT)
    demanding.proxy.use(denied, *BESIDE.get(call.operation, ()))

    if call.service == "service-quotas":  # a block has no quota
        demanding.change(capacity={"kind": "spot", "reservation_id": None, "block": None})

    texts = [f"{line.level} {line.check} {line.action}" for line in demanding.lines()]

    assert demanding.proxy.fault_counts[0] > 0
    named = [line for line in texts if call.action in line]
    assert named
    assert {line.split()[0] for line in named} <= {"unknown"}


def test_the_reference_has_the_policy_of_the_example():
    example = workspace().environments["post-us-east-2"]
    assert example.record is not None
    document = json.loads((ROOT / "docs/reference/policies/doctor.json").read_text())
    assert document == build_command_policy(example.record, "doctor")


def test_page_has_a_row_for_each_check():
    rows = re.findall(
        r"^\| ([a-z-]+) \| .* \| (yes|no) \|$", (ROOT / "docs/doctor.md").read_text(), re.MULTILINE
    )
    assert rows == [(check.id, "yes" if check.mandatory else "no") for check in CHECKS]
