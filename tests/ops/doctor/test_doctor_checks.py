"""Each check against an account: what is asked of AWS, and which lines come of it."""

from __future__ import annotations

import io
import json
import shlex
import time
import uuid
import zipfile
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from committed import known
from doctor_world import (
    ACCOUNT,
    NOW,
    REGION,
    RESERVATION,
    TYPE,
    ZONE,
    World,
    block,
    bucket,
    cluster,
    existing,
    extension,
    in_hours,
    node_group,
    schedule,
)
from fleet_seen import fence_objects, lease_objects

from tandem.declarations import names
from tandem.declarations.budgets import budget_cost_filters
from tandem.declarations.environment import (
    AlarmSubscription,
    CapacityBlock,
    CdkBootstrap,
    ClusterAccess,
    GitopsDelivery,
    HubSettings,
    ObservabilitySettings,
    OwnPrices,
)
from tandem.declarations.network_settings import NewNetwork
from tandem.declarations.project_image import PROJECT_IMAGES
from tandem.guard.capacity_block import BLOCK_ENDS_TAG, BLOCK_STARTS_TAG, RESERVATION_TAG
from tandem.guard.observe import CAPACITY_KIND_TAG
from tandem.ops.doctor.context import MissingImageError
from tandem.ops.doctor.storage import BUILD_QUOTA

SPOT = {"kind": "spot", "reservation_id": None, "block": None}
ON_DEMAND = {**SPOT, "kind": "on-demand"}
GATED = {"experiments": ("qwen3-native", "llama-eagle3")}
OVER = CapacityBlock(starts=NOW - timedelta(days=2), ends=NOW - timedelta(days=1))
ROLE, USER = (f"arn:aws:iam::{ACCOUNT}:{name}" for name in ("role/PlatformAdmin", "user/somebody"))
OWN_PRICES = OwnPrices(date=NOW.date(), endpoint_hour=0.01)
PATH_ROLE = f"arn:aws:iam::{ACCOUNT}:role/team/ml/Tuner"
PARAMETER = {
    "Resources": {
        "P": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "v"}}
    }
}
STUCK = {"Type": "AWS::EKS::Addon", "Properties": {"AddonName": "vpc-cni", "ClusterName": "none"}}
# as the form of EKS's schemas: docs/doctor.md says what is unproven of the add-on's own
AGENT_SCHEMA = {
    "type": "object",
    "properties": {
        "agents": {"type": "array"},
        "containerInsights": {"$ref": "#/definitions/Switch"},
        "containerLogs": {"$ref": "#/definitions/Switch"},
        "tolerations": {"type": "array", "items": {"type": "object"}},
    },
    "definitions": {"Switch": {"type": "object", "properties": {"enabled": {"type": "boolean"}}}},
}
Setup = Callable[[World], None]


def minor(status: str, days: float) -> dict[str, Any]:
    ends = (NOW + timedelta(days=days)).timestamp()
    return {"minors": {"1.36": {"versionStatus": status, "endOfStandardSupportDate": ends}}}


def access(*admins: str) -> dict[str, Any]:
    return {
        "cluster": {
            "access": ClusterAccess.model_construct(
                admin=admins, operator=(), engineer=(), viewer=()
            )
        }
    }


def told(protocol: str, endpoint: str) -> dict[str, Any]:
    subscription = AlarmSubscription(protocol=protocol, endpoint=endpoint)
    return {"observability": ObservabilitySettings(alarm_subscriptions=(subscription,))}


MAIL = told("email", "oncall@example.com")
# fact; check; level and code of each line; words of them; what is declared or offered otherwise
CASES: list[tuple[str, str, str, str, dict[str, Any]]] = [
    (
        "a type of other zones",
        "offering",
        "fail2",
        "only in use2-az1",
        {"capacity": SPOT, "offered": {TYPE: ["use2-az1"]}},
    ),
    ("a hidden type that was reserved", "offering", "warn0", "", {"offered": {TYPE: []}}),
    ("a quota of one node", "quota", "ok0", "", {"capacity": ON_DEMAND}),
    (
        "a quota of one for two",
        "quota",
        "fail2",
        "--desired-value 384",
        {"capacity": {**SPOT, "nodes": 2}},
    ),
    (
        "the default quota",
        "quota",
        "fail2",
        "",
        {"capacity": SPOT, "quotas": {}, "default_quotas": {"All Trn Spot Instance Requests": 0.0}},
    ),
    ("a quota that nobody lists", "quota", "unknown0", "", {"capacity": SPOT, "quotas": {}}),
    (
        "no build at all",
        "build-quota",
        "fail2",
        "--desired-value 1",
        {"quotas": {BUILD_QUOTA: 0.0}},
    ),
    ("a quota of builds that nobody lists", "build-quota", "unknown0", "", {"quotas": {}}),
    (
        "a schema that admits the agents",
        "agent-configuration",
        "ok0",
        "",
        {"addon_schema": AGENT_SCHEMA},
    ),
    (
        "a schema that knows no agents",
        "agent-configuration",
        "fail2",
        "configuration.agents is unknown",
        {"addon_schema": {"properties": {}, "additionalProperties": False}},
    ),
    ("a block of another account", "reservation", "fail2", RESERVATION, {"reservations": []}),
    (
        "another zone",
        "reservation",
        "fail2",
        "capacity.zone: use2-az1",
        {"reservations": [block(availabilityZoneId="use2-az1")]},
    ),
    (
        "another kind",
        "reservation",
        "fail2",
        "capacity.kind: reservation",
        {"reservations": [block(reservationType="default")]},
    ),
    (
        "fewer reserved",
        "reservation",
        "fail2 warn0",
        "capacity.nodes: 1",
        {"capacity": {"nodes": 2}},
    ),
    (
        "more reserved",
        "reservation",
        "warn0 ok0",
        "paid for idle",
        {"reservations": [block(totalInstanceCount=2, availableInstanceCount=2)]},
    ),
    (
        "a block to come",
        "reservation",
        "warn0 ok0",
        "",
        {"reservations": [block(state="scheduled")]},
    ),
    (
        "a block that is over",
        "reservation",
        "fail2",
        "",
        {"reservations": [block(state="expired")]},
    ),
    (
        "a block in use",
        "reservation",
        "warn0 ok0",
        "",
        {"reservations": [block(availableInstanceCount=0)]},
    ),
    (
        "a moved end",
        "reservation",
        "warn0 ok0",
        "{starts: 2026-11-21T11:30:00Z, ends: 2026-11-24T11:30:00Z}",
        {"reservations": [block(endDate=in_hours(71.5))]},
    ),
    ("no declared window", "reservation", "warn0 ok0", "", {"capacity": {"block": None}}),
    (
        "a block's last minutes",
        "reservation",
        "fail2 warn0",
        "no raise is admitted in its last 45 minutes",
        {"reservations": [block(endDate=in_hours(0.5))]},
    ),
    (
        "a block of a short rest",
        "reservation",
        "warn0 warn0 ok0",
        "it ends in 3.0 hours",
        {"reservations": [block(endDate=in_hours(3))]},
    ),
    (
        "a declared block that is over",
        "reservation",
        "fail2 warn0",
        "",
        {"capacity": {"reservation_id": None, "block": OVER}},
    ),
    (
        "an extension to be paid",
        "block-end",
        "warn0 ok0",
        "until 2026-11-24T11:30:00Z is not paid yet|no run beyond 2026-11-23T10:45:00Z",
        {"extensions": [extension("payment-pending")]},
    ),
    (
        "an extension that was not paid",
        "block-end",
        "warn0 ok0",
        "failed: the block ends at 2026-11-23T11:30:00Z",
        {"extensions": [extension("payment-failed")]},
    ),
    (
        "an extension that was paid at the second try",
        "block-end",
        "ok0",
        "",
        {
            "extensions": [
                extension(
                    "payment-failed", capacityBlockExtensionPurchaseDate="2026-11-21T11:40:00Z"
                ),
                extension("payment-succeeded"),
            ]
        },
    ),
    (
        "no reservation yet",
        "reservation",
        "warn0",
        "",
        {"capacity": {"reservation_id": None, "block": None}},
    ),
    (
        "a price before the purchase",
        "price",
        "warn0",
        "",
        {"capacity": {"usd_per_hour_date": date(2026, 11, 19)}},
    ),
    (
        "a price of the purchase",
        "price",
        "ok0",
        "",
        {
            "capacity": {"usd_per_hour_date": date(2026, 1, 5)},
            "reservations": [block(createDate="2026-01-05T09:00:00Z")],
        },
    ),
    (
        "a spot price of a week",
        "price",
        "ok0",
        "",
        {"capacity": {**SPOT, "usd_per_hour_date": date(2026, 11, 14)}},
    ),
    (
        "an old spot price",
        "price",
        "warn0",
        "",
        {"capacity": {**SPOT, "usd_per_hour_date": date(2026, 11, 13)}},
    ),
    (
        "a price of tomorrow",
        "price",
        "fail2",
        "",
        {"capacity": {**SPOT, "usd_per_hour_date": date(2026, 11, 22)}},
    ),
    (
        "a price that the data lack",
        "unit-prices",
        "warn0 warn0",
        "endpoint_hour is not known|prices: {date: 2026-11-21, endpoint_hour: 0.01}",
        {},
    ),
    (
        "prices as the Price List has them",
        "unit-prices",
        "ok0",
        "no price of 7",
        {"prices": OWN_PRICES},
    ),
    (
        "a discounted price",
        "unit-prices",
        "warn0 warn0",
        "nat_gb is counted with 0.03, the Price List has 0.045|endpoint_hour: 0.01, nat_gb: 0.045",
        {"prices": OWN_PRICES.model_copy(update={"nat_gb": 0.03})},
    ),
    (
        "two products of one usage type",
        "unit-prices",
        "unknown0 ok0",
        "no single price of NatGateway-Hours",
        {"prices": OWN_PRICES, "price_list+": {"USE2-NatGateway-Hours": [0.045, 0.05]}},
    ),
    (
        "a tag nobody knows",
        "cost-tag",
        "warn0",
        f"stops nothing|TagKey={names.OWNER_TAG},Status=Active",
        {"cost_tags": {}},
    ),
    (
        "an inactive tag",
        "cost-tag",
        "warn0",
        "not activated",
        {"cost_tags": {names.OWNER_TAG: "Inactive"}},
    ),
    ("a member account", "cost-tag", "unknown0", "management account", {"member": True}),
    ("a minor that ends soon", "minor", "warn0 warn0", "", minor("STANDARD_SUPPORT", 89)),
    ("a minor in extended support", "minor", "warn0 warn0", "", minor("EXTENDED_SUPPORT", -5)),
    ("a minor out of support", "minor", "fail2", "", minor("UNSUPPORTED", -400)),
    ("a minor that EKS does not know", "minor", "fail2", "", {"minors": {}}),
    (
        "an end of support that moved",
        "minor",
        "ok0 warn0",
        "{value: 2027-09-01, source: KEY}",
        minor(
            "STANDARD_SUPPORT", (datetime(2027, 9, 1, tzinfo=NOW.tzinfo) - NOW) / timedelta(days=1)
        ),
    ),
    ("add-ons as pinned", "addons", "ok0", "6 of 6 add-ons are offered for 1.36 as pinned", {}),
    ("principals that exist", "principals", "ok0", "2 principals", access(ROLE, USER)),
    (
        "a role that is not there",
        "principals",
        "fail2",
        "there is no role",
        access(f"arn:aws:iam::{ACCOUNT}:role/path/to/Nobody"),
    ),
    (
        "a role without its path",
        "principals",
        "fail2",
        f"|write {PATH_ROLE}",
        access(PATH_ROLE.replace("team/ml/", "")),
    ),
    ("a role with its path", "principals", "ok0", "1 principals", access(PATH_ROLE)),
    (
        "a role of another account",
        "principals",
        "warn0",
        "",
        access("arn:aws:iam::999999999999:role/Theirs"),
    ),
    ("nobody may enter", "principals", "warn0", "nobody can enter", access()),
    (
        "nobody gets alarms",
        "subscriptions",
        "warn0",
        "",
        {"observability": ObservabilitySettings()},
    ),
    (
        "nobody has confirmed",
        "subscriptions",
        "warn0",
        "has not confirmed",
        {**MAIL, "subscriptions": {"oncall@example.com": "PendingConfirmation"}},
    ),
    (
        "not subscribed",
        "subscriptions",
        "warn0",
        "declared and not subscribed",
        {**MAIL, "subscriptions": {}},
    ),
    (
        "a confirmed subscriber",
        "subscriptions",
        "ok0",
        "1 of 1",
        {**MAIL, "subscriptions": {"oncall@example.com": "arn:aws:sns"}},
    ),
    (
        "a declared bucket that is not there",
        "bucket",
        "fail2",
        "",
        {"artifacts": {"existing_bucket": "not-there"}},
    ),
    (
        "a key that is not there",
        "bucket-key",
        "fail2",
        "",
        {
            "artifacts": {
                "kms_key_arn": (
                    f"arn:aws:kms:{REGION}:{ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef"
                )
            }
        },
    ),
    ("a gated model without a secret", "token", "fail2", "", {**GATED, "hub": HubSettings()}),
    (
        "a secret that is not there",
        "token",
        "fail2",
        "aws secretsmanager create-secret",
        {**GATED, "hub": HubSettings(token_secret="a/b")},  # noqa: S106 - a name
    ),
    (
        "an empty secret",
        "token",
        "fail2",
        "aws secretsmanager put-secret-value",
        {**GATED, "hub": HubSettings(token_secret="a/b"), "secrets": {"a/b": {"Name": "a/b"}}},  # noqa: S106 - a name
    ),
    (
        "a zone that is not there",
        "zones",
        "fail2",
        "use2-az9",
        {"network": NewNetwork(kind="new", cidr="10.0.0.0/16", zones=("use2-az1", "use2-az9"))},
    ),
    (
        "subnets that are not there",
        "subnets",
        "fail2",
        "",
        {
            "network": existing(
                "vpc-00000000", ("subnet-00000000", "use2-az1"), ("subnet-00000001", "use2-az2")
            )
        },
    ),
    (
        "a zone without small nodes",
        "system-nodes",
        "warn0",
        "",
        {"offered": {"m7i.xlarge": ["use2-az1"]}},
    ),
    ("no small nodes", "system-nodes", "fail2", "", {"offered": {"m7i.xlarge": []}}),
    (
        "a boundary that is not there",
        "boundary",
        "fail2",
        "",
        {"bootstrap": CdkBootstrap(permissions_boundary="None")},
    ),
    (
        "a bootstrap that is missing",
        "bootstrap",
        "fail2",
        (
            f"npx cdk bootstrap aws://{ACCOUNT}/us-east-2 --qualifier acme|CDKToolkit-acme"
            " --custom-permissions-boundary Team"
        ),
        {"bootstrap": CdkBootstrap(qualifier="acme", permissions_boundary="Team")},
    ),
    (
        "the example's placeholders",
        "placeholders",
        "fail2 fail2 fail2",
        "yaml: account|yaml: capacity.reservation_id|yaml: delivery.repo_url",
        {
            "account": "111122223333",
            "capacity": {"reservation_id": "cr-00000000000000000"},
            "delivery": GitopsDelivery(
                kind="gitops",
                repo_url="https://git.example.com/a.git",
                revision="main",
                path="a",
                tool="flux",
                namespace="f",
            ),
        },
    ),
]


@pytest.mark.parametrize(
    ("check", "lines", "words", "changes"),
    [row[1:] for row in CASES],
    ids=[f"{row[1]}: {row[0]}" for row in CASES],
)
def test_what_is_declared_is_held_against_the_account(world, check, lines, words, changes):
    world.alter(**changes)
    expect(world, check, lines, words)


def expect(world: World, check: str, lines: str, words: str = "") -> None:
    """Hold level and code of each line of a check against `warn0 fail2`, and its texts against
    words parted by `|`."""
    results = world.lines(check)

    assert " ".join(f"{result.level}{result.code}" for result in results) == lines
    text = "\n".join(f"{result.message}\n{result.action}\n{result.command}" for result in results)
    assert [word for word in words.split("|") if word not in text] == []


def put(world: World, objects: dict[str, dict[str, Any]]) -> None:
    bucket_name = names.bucket_name(world.environment)
    for key, document in objects.items():
        world.endpoint.client("s3").put_object(
            Bucket=bucket_name, Key=key, Body=json.dumps(document).encode()
        )


def fence(world: World, suspended: tuple[str, ...] = ()) -> None:
    put(world, fence_objects(state="stopped", who="reap", why="idle", suspended=suspended))


def lease(world: World, hours: float) -> None:
    put(world, lease_objects(created=NOW, deadline=NOW + timedelta(hours=hours)))


def deploy(world: World, kind: str | None = "on-demand", **more: Any) -> None:
    """A cluster of the environment's own, its node group at 0, its bucket."""
    cluster(world)
    bucket(world)
    tags = {names.OWNER_TAG: world.environment.name, **({CAPACITY_KIND_TAG: kind} if kind else {})}
    node_group(world, tags=tags, **more)


def deploy_block(
    world: World,
    scale_down: str = "",
    ends: str = "2026-11-23T11:30:00Z",
    reservation: str = RESERVATION,
) -> None:
    """Deploy Fleet for a block, whose plan ends then; EKS's own action comes at another moment."""
    plan = {
        RESERVATION_TAG: reservation,
        BLOCK_STARTS_TAG: "2026-11-21T11:30:00Z",
        BLOCK_ENDS_TAG: ends,
    }
    cluster(world)
    node_group(world, tags={names.OWNER_TAG: world.environment.name, **plan})
    world.facts.reservations = [block(capacityReservationId=reservation)]
    world.facts.scale_down = scale_down


def deploy_guard(world: World, kind: str) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("handler.py", "handler = None")
    world.endpoint.client("lambda").create_function(
        FunctionName=names.guard_function_name(world.environment, "stop"),
        Runtime="python3.13",
        Role=ROLE,
        Handler="handler.handler",
        Code={"ZipFile": archive.getvalue()},
        Environment={"Variables": {"TANDEM_CAPACITY_KIND": kind}},
    )


def parts(world: World) -> dict[str, str]:
    return {
        "clusterName": names.cluster_name(world.environment),
        "nodegroupName": names.node_group_name(world.environment),
    }


def raise_fleet(world: World) -> None:
    deploy(world)
    sizes = {"minSize": 0, "desiredSize": 1, "maxSize": 1}
    world.endpoint.client("eks").update_nodegroup_config(scalingConfig=sizes, **parts(world))


def scaling_group(world: World) -> str:
    described = world.endpoint.client("eks").describe_nodegroup(**parts(world))["nodegroup"]
    return str(described["resources"]["autoScalingGroups"][0]["name"])


def suspend(world: World, *processes: str, by_stop: bool = False) -> None:
    deploy(world)
    world.facts.suspended = list(processes)
    if by_stop:
        fence(world, suspended=(scaling_group(world),))


def make_bucket(world: World, account: str = ACCOUNT) -> None:
    world.endpoint.account, mine = account, world.endpoint.account
    try:
        bucket(world)
    finally:
        world.endpoint.account = mine


def make_stack(world: World, kind: str, template: dict[str, Any] = PARAMETER) -> None:
    cloudformation = world.endpoint.client("cloudformation")
    name = f"{world.environment.name}-{kind}"
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    for _ in range(200):
        if not cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"].endswith(
            "PROGRESS"
        ):
            return
        time.sleep(0.02)
    raise TimeoutError(name)


def make_budget(world: World, **changes: Any) -> None:
    world.endpoint.client("budgets").create_budget(
        AccountId=ACCOUNT,
        Budget={
            "BudgetName": names.budget_name(world.environment),
            "BudgetType": "COST",
            "TimeUnit": "MONTHLY",
            "BudgetLimit": {"Amount": "2000", "Unit": "USD"},
            "CostFilters": budget_cost_filters(world.environment, known()),
            **changes,
        },
    )


def make_repositories(world: World, *, built: bool = False) -> None:
    ecr = world.endpoint.client("ecr")
    for image in PROJECT_IMAGES:
        repository = names.repository_name(world.environment, image.name)
        ecr.create_repository(repositoryName=repository)
        manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
        )
        if built:
            ecr.put_image(repositoryName=repository, imageManifest=manifest, imageTag=image.tag())


def make_secret(world: World, *, deleted: bool = False) -> None:
    name = f"{world.environment.name}/token"
    secrets = world.endpoint.client("secretsmanager")
    world.alter(**GATED, hub=HubSettings(token_secret=name))
    secrets.create_secret(Name=name, SecretString="a-token")
    if deleted:
        secrets.delete_secret(SecretId=name)


def make_key(world: World, *, enabled: bool) -> None:
    kms = world.endpoint.client("kms")
    arn = kms.create_key()["KeyMetadata"]["Arn"]
    if not enabled:
        kms.disable_key(KeyId=arn)
    world.alter(artifacts={"kms_key_arn": arn})


def make_bootstrap(world: World, version: str) -> None:
    name = uuid.uuid4().hex[:8]
    world.endpoint.client("ssm").put_parameter(
        Name=f"/cdk-bootstrap/{name}/version", Value=version, Type="String"
    )
    world.alter(bootstrap=CdkBootstrap(qualifier=name))


def make_boundary(world: World) -> None:
    name = f"Boundary{uuid.uuid4().hex[:6]}"
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    world.endpoint.client("iam").create_policy(PolicyName=name, PolicyDocument=json.dumps(document))
    world.alter(bootstrap=CdkBootstrap(permissions_boundary=name))


def make_network(world: World, zone: str = ZONE, vpc: str = "") -> None:
    """A VPC of somebody else with one subnet in ZONE; it is declared in a zone and a VPC."""
    ec2 = world.endpoint.client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc_id, CidrBlock="10.9.0.0/24", AvailabilityZoneId=ZONE)[
        "Subnet"
    ]["SubnetId"]
    world.alter(network=existing(vpc or vpc_id, (subnet, zone)))


def lose_images(world: World) -> None:
    def miss(reference: str) -> str:
        raise MissingImageError(f"{reference}: not there")

    world.digest_of = miss


# fact; check; level and code of each line; words of them; what is deployed, by name of its function
# and arguments
DEPLOYMENTS: list[tuple[str, str, str, str, Setup, dict[str, Any]]] = [
    (
        "an add-on no longer offered",
        "addons",
        "fail2 ok0",
        "{value: v9.9.9-eksbuild.1, source: KEY}",
        World.alter,
        {
            "addons+": {"coredns": ["v9.9.9-eksbuild.2", "v9.9.9-eksbuild.1"]},
            "default_addon": {"coredns": "v9.9.9-eksbuild.1"},
        },
    ),
    (
        "the newest node image",
        "node-image",
        "ok0",
        "is no older than what EKS recommends",
        World.alter,
        {},
    ),
    (
        "a newer node image",
        "node-image",
        "warn0",
        "cluster.ami_release: 1.36.4-20261003",
        World.alter,
        {"ami_release": "1.36.4-20261003"},
    ),
    ("a cluster of ours", "control-plane", "ok0", "is ACTIVE with Kubernetes 1.36", cluster, {}),
    (
        "another tool's cluster",
        "control-plane",
        "fail2",
        "has no tag tandem:environment",
        cluster,
        {"tags": {"a": "b"}},
    ),
    (
        "a cluster of another minor",
        "control-plane",
        "warn0",
        "runs 1.35, declared is 1.36",
        cluster,
        {"version": "1.35"},
    ),
    ("a fleet at 0", "fleet", "ok0", "is ours, at 0, without an instance", deploy, {}),
    ("a raised fleet without a lease", "fleet", "warn0", "tandem stop --env", raise_fleet, {}),
    ("another tool's node group", "fleet", "fail2", "", deploy, {"tags": {"a": "b"}}),
    (
        "one kind everywhere",
        "capacity-kind",
        "ok0",
        "at its limit the budget stops the fleet",
        deploy,
        {"guard": "on-demand"},
    ),
    (
        "a fleet of another kind",
        "capacity-kind",
        "fail3",
        "as capacity-block: at its limit the budget only tells|/Fleet -c",
        deploy,
        {"kind": "capacity-block", "guard": "on-demand"},
    ),
    (
        "a guard of another kind",
        "capacity-kind",
        "fail3",
        "Guard is deployed with spot|/Guard -c",
        deploy,
        {"guard": "spot"},
    ),
    (
        "what EKS buys in another way",
        "capacity-kind",
        "fail3",
        "EKS buys SPOT",
        deploy,
        {"capacity_type": "SPOT"},
    ),
    (
        "a fleet without a tag",
        "capacity-kind",
        "warn0",
        "has no tag tandem:capacity-kind|/Fleet -c",
        deploy,
        {"kind": None, "guard": "on-demand"},
    ),
    (
        "the guard's kind without a tag",
        "capacity-kind",
        "fail3 warn0",
        "the budget only tells people",
        deploy,
        {"kind": None, "guard": "capacity-block"},
    ),
    (
        "another tool's kind",
        "capacity-kind",
        "unknown3",
        "",
        deploy,
        {"tags": {"a": "b", CAPACITY_KIND_TAG: "spot"}},
    ),
    ("a block as deployed", "reservation", "ok0", "", deploy_block, {}),
    (
        "a block that moved since the deploy",
        "reservation",
        "warn0 ok0",
        "the reaper stops the fleet at 2026-11-22T10:45:00Z|deploy Fleet once nothing runs",
        deploy_block,
        {"ends": "2026-11-22T11:30:00Z"},
    ),
    (
        "a plan that cannot be read",
        "reservation",
        "warn0 ok0",
        "cannot be read",
        deploy_block,
        {"ends": "soon"},
    ),
    (
        "another block than the deployed one",
        "reservation",
        "warn0 ok0",
        "deployed for cr-00000000000000001, and the file names cr-0123456789abcdef0",
        deploy_block,
        {"reservation": "cr-00000000000000001"},
    ),
    (
        "a scale-down 40 minutes before the end",
        "block-end",
        "ok0",
        "",
        deploy_block,
        {"scale_down": "2026-11-23T10:50:00Z"},
    ),
    (
        "a scale-down of the end before",
        "block-end",
        "warn0",
        "a run beyond the first moment loses its nodes",
        deploy_block,
        {"scale_down": "2026-11-22T10:50:00Z"},
    ),
    (
        "a scale-down after an early end",
        "block-end",
        "warn0",
        "EKS comes too late",
        deploy_block,
        {"scale_down": "2026-11-24T10:50:00Z"},
    ),
    (
        "no scale-down",
        "block-end",
        "ok0",
        "the reaper stops the fleet at 2026-11-23T10:45:00Z",
        deploy_block,
        {},
    ),
    ("nothing suspended", "scaling", "ok0", "", suspend, {}),
    (
        "launches that a stranger suspended",
        "scaling",
        "fail3",
        "every start refuses|--scaling-processes Launch",
        suspend,
        {"processes": ("Launch",)},
    ),
    (
        "launches that a stop suspended",
        "scaling",
        "ok0",
        "the next start resumes it",
        suspend,
        {"processes": ("Launch",), "by_stop": True},
    ),
    (
        "other processes",
        "scaling",
        "warn0",
        "--scaling-processes Terminate HealthCheck",
        suspend,
        {"processes": ("Terminate", "HealthCheck")},
    ),
    ("a budget of the fleet", "budget", "ok0", "counts the fleet's instances", make_budget, {}),
    (
        "a budget that counts more",
        "budget",
        "warn0",
        "deploy the stack Guard|USE2-BoxUsage:trn2.48xlarge",
        make_budget,
        {"CostFilters": {"TagKeyValue": ["user:a$b"]}},
    ),
    (
        "a bucket of an earlier deploy",
        "bucket",
        "warn0 ok0",
        "--import-existing-resources",
        make_bucket,
        {},
    ),
    (
        "somebody else's bucket",
        "bucket",
        "fail2 ok0",
        "somebody else's",
        make_bucket,
        {"account": "333344445555"},
    ),
    (
        "an image that is not there",
        "own-images",
        "warn0 warn0 warn0 warn0",
        "aws codebuild start-build --project-name",
        make_repositories,
        {},
    ),
    ("built images", "own-images", "ok0 ok0 ok0 ok0", "", make_repositories, {"built": True}),
    ("a secret", "token", "ok0", "", make_secret, {}),
    (
        "a secret that is being deleted",
        "token",
        "fail2",
        "aws secretsmanager restore-secret",
        make_secret,
        {"deleted": True},
    ),
    ("an enabled key", "bucket-key", "ok0", "", make_key, {"enabled": True}),
    ("a disabled key", "bucket-key", "fail2", "", make_key, {"enabled": False}),
    ("an old bootstrap", "bootstrap", "fail2", "", make_bootstrap, {"version": "5"}),
    ("a bootstrap without look-ups", "bootstrap", "warn0", "", make_bootstrap, {"version": "7"}),
    ("a bootstrap", "bootstrap", "ok0", "", make_bootstrap, {"version": "8"}),
    ("a boundary", "boundary", "ok0", "", make_boundary, {}),
    (
        "half a deployment",
        "stacks",
        "warn0",
        "partly deployed: Network;",
        make_stack,
        {"kind": "Network"},
    ),
    (
        "a stack that takes no update",
        "stacks",
        "fail3",
        "aws cloudformation delete-stack --stack-name",
        make_stack,
        {"kind": "Cluster", "template": {"Resources": {"A": STUCK}}},
    ),
    ("a subnet as declared", "subnets", "ok0", "", make_network, {}),
    (
        "a subnet in another zone",
        "subnets",
        "fail2",
        f"lies in {ZONE}, not in use2-az2",
        make_network,
        {"zone": "use2-az2"},
    ),
    ("a subnet of another VPC", "subnets", "fail2", "", make_network, {"vpc": "vpc-00000000"}),
]


@pytest.mark.parametrize(
    ("check", "lines", "words", "setup", "options"),
    [row[1:] for row in DEPLOYMENTS],
    ids=[f"{row[1]}: {row[0]}" for row in DEPLOYMENTS],
)
def test_what_is_deployed_is_held_against_the_file(world, check, lines, words, setup, options):
    if check in {"capacity-kind", "scaling"}:  # a kind that EKS takes without a launch template
        world.alter(capacity=ON_DEMAND)
    guard_kind = options.get("guard")
    if guard_kind:
        deploy_guard(world, guard_kind)
    arguments = {key: value for key, value in options.items() if key not in {"guard", "processes"}}
    if "tags" in arguments and setup is deploy:
        cluster(world)
        bucket(world)
        setup = node_group
    setup(world, *options.get("processes", ()), **arguments)

    expect(world, check, lines, words)


def test_unpinned_add_on_prints_what_to_write(world):
    world.alter(cluster={"kubernetes": "1.34"})
    world.facts.addons["aws-mountpoint-s3-csi-driver"] = ["v2.9.9-eksbuild.1"]
    commands = [line.command for line in world.lines("addons") if line.level == "warn"]
    assert [command.rpartition("{")[2] for command in commands] == [
        "value: v2.9.9-eksbuild.1, source: KEY}"
    ]


@pytest.mark.parametrize(
    ("hours", "lines", "words"),
    [
        (2, "warn0", "a deploy that updates Fleet sets it to 0|npx cdk diff "),
        (-1, "ok0", ""),
    ],
)
def test_a_live_lease_warns_of_a_deploy(world, hours, lines, words):
    deploy(world)
    lease(world, hours)
    expect(world, "fleet", lines, words)


def test_a_fence_is_a_warning_and_names_who_set_it(world):
    deploy(world)
    fence(world)
    expect(world, "fleet", "warn0", "behind a fence, of reap: idle")


def test_missing_bucket_beside_a_node_group_is_unknown(world):
    cluster(world)
    node_group(world)
    expect(world, "fleet", "unknown3")


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("stop-r1", "ok0", "has no schedule but the lease's own"),
        ("stop-ended", "fail3", "every start refuses beside it|--name stop-ended"),
    ],
)
def test_a_schedule_of_no_lease_fails(world, name, lines, words):
    bucket(world)
    lease(world, 8)
    schedule(world, name)
    expect(world, "schedules", lines, words)


def test_a_region_without_budgets_gets_the_command_that_makes_one(world, monkeypatch):
    monkeypatch.setattr("tandem.declarations.budgets.REGIONS_WITHOUT_BUDGETS", frozenset({REGION}))
    line = world.only("budget")
    words = shlex.split(line.command)
    budget, notifications = (
        json.loads(words[words.index(flag) + 1])
        for flag in ("--budget", "--notifications-with-subscribers")
    )
    world.endpoint.client("budgets").create_budget(
        AccountId=ACCOUNT, Budget=budget, NotificationsWithSubscribers=notifications
    )

    assert (line.level, words[:3], len(notifications)) == (
        "warn",
        ["aws", "budgets", "create-budget"],
        6,
    )
    expect(world, "budget", "ok0")


def test_a_bucket_of_the_deployed_stack_is_ours(world):
    make_bucket(world)
    make_stack(world, "Artifacts")
    expect(world, "bucket", "ok0 ok0", f"{names.bucket_name(world.environment)} is ours")


@pytest.mark.parametrize("status", [200, 301])
def test_a_bucket_in_another_region_is_bad_input(world, status):
    world.facts.buckets[names.bucket_name(world.environment)] = (status, "eu-west-1")
    expect(world, "bucket", "fail2 ok0", "the environment in us-east-2")


def test_a_declared_bucket_that_is_there_is_ours(world):
    world.alter(artifacts={"existing_bucket": f"{world.environment.name}-mine"})
    make_bucket(world)
    expect(world, "bucket", "ok0")


def test_images_are_asked_for_by_their_digest(world):
    references: list[str] = []
    world.digest_of = lambda reference: references.append(reference) or "sha256:"
    assert "fail" not in world.levels("images")
    assert [reference for reference in references if "@sha256:" in reference]


def test_an_image_that_its_registry_has_not_is_bad_input(world):
    lose_images(world)
    assert {line.code for line in world.lines("images") if line.level == "fail"} == {2}


@pytest.mark.parametrize("cached", [False, True])
def test_an_image_that_the_mirror_lacks_is_copied_or_cached(world, *, cached):
    host = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/{world.environment.name}"
    world.alter(registry_mirrors={"public.ecr.aws": host, "docker.io": host})
    world.facts.cache_rules = [world.environment.name] if cached else []

    lines = world.lines("images")

    commands = [line.command for line in lines if line.level == "fail"]
    assert bool(commands) is not cached
    assert all(command.startswith("docker buildx imagetools create --tag") for command in commands)
    assert any("not cached yet" in line.message for line in lines) is cached


def test_no_secret_is_read(world):
    world.alter(**GATED, hub=HubSettings(token_secret="a/b"))  # noqa: S106 - a name
    world.lines("token")
    assert world.proxy.requests("GetSecretValue") == ()
