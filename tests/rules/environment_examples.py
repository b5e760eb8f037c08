"""For every rule of an environment one example that it finds and one close by that it does not."""

from __future__ import annotations

from typing import Any

from example import (
    ADMIN,
    CAPACITY,
    ENDPOINT,
    EXISTING,
    MIRRORS,
    SWEEP,
    VARIANT,
    Changes,
    Example,
    kubectl,
    native,
    no_billing_codes,
    no_digests,
    offered,
    small,
    system_node,
)
from known import ENVIRONMENT

from tandem.spec.environment import PLACEHOLDER_RESERVATION_ID

WIDE = {**SWEEP, "num_speculative_tokens": list(range(2, 31))}
HUB = {"endpoint": "https://hub.acme.dev"}
BLOCK = {"starts": "2026-12-01T11:30:00Z", "ends": "2026-12-08T11:30:00Z"}
CACHES = {
    published: f"210987654321.dkr.ecr.us-east-2.amazonaws.com/{prefix}"
    for published, prefix in (("public.ecr.aws", "public"), ("registry.k8s.io", "k8s"))
}
KEY = "arn:aws:kms:us-east-2:210987654321:key/01234567-89ab-cdef-0123-456789abcdef"
SUBSCRIPTIONS = "environment.observability.alarm_subscriptions"
MAIL = {"protocol": "email", "endpoint": "oncall@acme.dev"}
VALUE = {"experiment": "pair", "variant": "plain", "prompt_class": "json", "concurrency": 4, "tpot_ms": 45}


def reference(*values: dict[str, Any]) -> Changes:
    """Return a reference run with these values."""
    return {"environment.observability.reference": {"run": "20261121T101500Z-0123abcd", "values": list(values)}}


ENVIRONMENT_EXAMPLES: dict[str, Example] = {
    "region-offers-type": Example(
        path="region",
        found={
            "environment.region": "us-west-2", f"{CAPACITY}.zone": "usw2-az1",
            "environment.network.zones": ["usw2-az1", "usw2-az2"],
        },
    ),
    "zone-offers-type": Example(
        path="capacity.zone", found={f"{CAPACITY}.zone": "use2-az2"}, passed={f"{CAPACITY}.zone": "use2-az1"}
    ),
    "zone-of-region": Example(
        path="network.zones[1]", found={"environment.network.zones": ["use2-az3", "usw2-az1"]}
    ),
    "zone-has-subnet": Example(
        path="capacity.zone", found={"environment.network.zones": ["use2-az1", "use2-az2"]}
    ),
    "system-nodes-offered": Example(
        path="cluster.system_nodes.instance_type",
        vary=offered("m7i.xlarge", "use2-az4"),
        vary_passed=offered("m7i.xlarge", "use2-az1"),
    ),
    "system-nodes-hold": Example(
        path="cluster.system_nodes",
        # 2 models and llmperf take 2000m; 2 nodes leave 2 x (allocatable - 500m) - 1000m
        vary=system_node(cpu_m=1999, memory_mib=14162),
        vary_passed=system_node(cpu_m=2000, memory_mib=14162),
    ),
    "capacity-kind": Example(
        path="capacity.kind",
        found={**small(), f"{CAPACITY}.kind": "reservation", f"{CAPACITY}.reservation_id": "cr-0123456789abcdef0"},
        passed=small(), also=("compile-memory",),
    ),
    "reservation-given": Example(
        path="capacity.reservation_id", found={f"{CAPACITY}.reservation_id": PLACEHOLDER_RESERVATION_ID}
    ),
    "reservation-used": Example(
        path="capacity.reservation_id",
        found={f"{CAPACITY}.kind": "spot"},
        passed={f"{CAPACITY}.kind": "spot", f"{CAPACITY}.reservation_id": None},
    ),
    "reservation-own": Example(
        path="capacity.reservation_id",
        found={"twin.capacity.reservation_id": "cr-0123456789abcdef0"},
        passed={"twin.capacity.reservation_id": "cr-0123456789abcdef1"},
    ),
    "block-kind": Example(
        path="capacity.block",
        found={f"{CAPACITY}.kind": "reservation", f"{CAPACITY}.block": BLOCK},
        passed={f"{CAPACITY}.block": BLOCK},
    ),
    "block-order": Example(
        path="capacity.block.ends",
        found={f"{CAPACITY}.block": {**BLOCK, "ends": BLOCK["starts"]}},
        passed={f"{CAPACITY}.block": {**BLOCK, "ends": "2026-12-01T11:31:00Z"}},
    ),
    "block-length": Example(
        path="capacity.block.ends",
        found={f"{CAPACITY}.block": {**BLOCK, "ends": "2027-06-02T11:31:00Z"}},
        passed={f"{CAPACITY}.block": {**BLOCK, "ends": "2027-06-02T11:30:00Z"}},
    ),
    "block-over": Example(
        path="capacity.block.ends",
        found={f"{CAPACITY}.block": {"starts": "2026-11-21T11:30:00Z", "ends": "2026-11-22T11:30:00Z"}},
        passed={f"{CAPACITY}.block": {"starts": "2026-11-21T11:30:00Z", "ends": "2026-11-22T12:01:00Z"}},
    ),
    "price-to-come": Example(
        path="capacity.usd_per_hour_date",
        found={f"{CAPACITY}.usd_per_hour_date": "2026-11-24"},
        passed={f"{CAPACITY}.usd_per_hour_date": "2026-11-23"},  # it has begun in Kiribati
    ),
    "account-real": Example(
        path="account",
        found={"environment.account": "111122223333"},
        also=("principal-own",),
    ),
    "budget-holds-run": Example(
        path="guard.budget_usd",
        found={"environment.guard.budget_usd": 286},
        passed={"environment.guard.budget_usd": 287},
    ),
    "budget-own": Example(
        path="tags",
        found={"environment.guard.budget_usd": 572, "twin.guard.budget_usd": 2000},
        passed={"environment.guard.budget_usd": 573, "twin.guard.budget_usd": 2000},
    ),
    "budget-by-hand": Example(
        path="region",
        found={
            **small(), "environment.region": "ap-southeast-4", f"{CAPACITY}.zone": "apse4-az3",
            "environment.network.zones": ["apse4-az1", "apse4-az3"],
        },
        passed=small(), also=("compile-memory",),
    ),
    "billing-code": Example(path="region", vary=no_billing_codes),
    "storage-price-dated": Example(
        path="artifacts.usd_per_gb_month_date",
        found={"environment.artifacts.usd_per_gb_month": 0.02},
        passed={
            "environment.artifacts.usd_per_gb_month": 0.02, "environment.artifacts.usd_per_gb_month_date": "2026-11-21",
        },
    ),
    "idle-before-max": Example(
        path="guard.idle_minutes",
        found={"environment.guard.max_hours": 1, "environment.guard.idle_minutes": 60},
        passed={"environment.guard.max_hours": 1, "environment.guard.idle_minutes": 59},
        also=("compile-before-guard",),
    ),
    "efa-needless": Example(path="capacity.efa", found={f"{CAPACITY}.efa": True}),
    "kubernetes-floor": Example(
        path="cluster.kubernetes", found={"environment.cluster.kubernetes": "1.34"}
    ),
    "kubernetes-known": Example(
        path="cluster.kubernetes", found={"environment.cluster.kubernetes": "1.38"}
    ),
    "kubernetes-behind": Example(
        path="cluster.kubernetes", found={"environment.cluster.kubernetes": "1.35"}
    ),
    "node-image-pinned": Example(
        path="cluster.kubernetes", found={"environment.cluster.kubernetes": "1.37"}, also=("addons-pinned",)
    ),
    "addons-pinned": Example(
        path="cluster.kubernetes", found={"environment.cluster.kubernetes": "1.37"}, also=("node-image-pinned",)
    ),
    "driver-minimum": Example(
        path="experiments[0]",
        found={**native(), "environment.cluster.kubernetes": "1.37"},
        passed=native(),
        also=("node-image-pinned", "addons-pinned"),
    ),
    "images-pinned": Example(path="experiments", vary=no_digests),
    "kubectl-skew": Example(
        path="cluster.kubernetes",
        found={"environment.delivery": {"kind": "cdk"}}, vary=kubectl("1.34"),
        passed={"environment.delivery": {"kind": "cdk"}}, vary_passed=kubectl("1.35"),
    ),
    "capabilities-few": Example(
        path="serving.capabilities", found={"environment.serving": {"capabilities": "neuron"}},
        passed={"environment.serving": {"capabilities": "runtime-default"}},
    ),
    "mirrors-complete": Example(
        path="registry_mirrors",
        found={"environment.registry_mirrors": {"public.ecr.aws": "mirror.acme.dev/public"}},
        passed={"environment.registry_mirrors": MIRRORS},
    ),
    "hub-reached": Example(
        path="hub.endpoint",
        found={"environment.network.nat": "none", "environment.registry_mirrors": MIRRORS},
        passed={
            "environment.network.nat": "none", "environment.registry_mirrors": MIRRORS,
            "environment.hub": {"endpoint": "https://hub.acme.dev"},
        },
    ),
    "mirrors-closed": Example(
        path="registry_mirrors",
        found={"environment.network.nat": "none", "environment.hub": HUB},
        passed={"environment.network.nat": "none", "environment.registry_mirrors": MIRRORS},
    ),
    "mirrors-seeded": Example(
        path="registry_mirrors",
        found={"environment.network.nat": "none", "environment.registry_mirrors": CACHES, "environment.hub": HUB},
        passed={"environment.network.nat": "none", "environment.registry_mirrors": MIRRORS, "environment.hub": HUB},
    ),
    "range-valid": Example(
        path="network.cidr",
        found={"environment.network.cidr": "10.42.0.1/16"},
        passed={"environment.network.cidr": "10.42.0.0/16"},
    ),
    "range-size": Example(
        path="network.cidr",
        found={"environment.network.cidr": "10.42.0.0/24"},
        passed={"environment.network.cidr": "10.42.0.0/20"},
    ),
    "range-private": Example(
        path="network.cidr",
        found={"environment.network.cidr": "8.8.0.0/16"},
        passed={"environment.network": EXISTING},
    ),
    "zones-two": Example(
        path="network.zones", found={"environment.network.zones": ["use2-az3", "use2-az3"]}
    ),
    "subnet-once": Example(
        path="network.zones[2]", found={"environment.network.zones": ["use2-az1", "use2-az3", "use2-az3"]}
    ),
    "ranges-apart": Example(
        path="network.secondary_cidrs[0]",
        found={"environment.network": {**EXISTING, "secondary_cidrs": ["100.64.4.0/22"]}},
        passed={"environment.network": {**EXISTING, "secondary_cidrs": ["100.65.0.0/16"]}},
    ),
    "closed-needs-endpoints": Example(
        path="network.interface_endpoints",
        found={
            "environment.network.nat": "none", "environment.network.interface_endpoints": False,
            "environment.registry_mirrors": MIRRORS, "environment.hub": HUB,
        },
        passed={"environment.network.nat": "none", "environment.registry_mirrors": MIRRORS, "environment.hub": HUB},
    ),
    "clients-private": Example(
        path="cluster.endpoint.clients[0]",
        found={f"{ENDPOINT}.clients": ["203.0.113.0/24"]},
        passed={f"{ENDPOINT}.clients": ["10.8.0.0/16", "100.64.0.0/10", "sg-0123456789abcdef0"]},
    ),
    "endpoint-named": Example(
        path="cluster.endpoint.cidrs",
        found={f"{ENDPOINT}.access": "public"},
        passed={f"{ENDPOINT}": {"access": "public", "cidrs": ["203.0.113.0/24"]}},
    ),
    "endpoint-open": Example(
        path="cluster.endpoint.cidrs[0]",
        found={f"{ENDPOINT}": {"access": "public", "cidrs": ["0.0.0.0/0"]}},
        passed={f"{ENDPOINT}": {"access": "public", "cidrs": ["203.0.113.0/24"]}},
    ),
    "endpoint-routed": Example(
        path="cluster.endpoint.cidrs[1]",
        found={f"{ENDPOINT}": {"access": "public", "cidrs": ["203.0.113.0/24", "10.0.0.0/8"]}},
        passed={f"{ENDPOINT}": {"access": "public", "cidrs": ["203.0.113.0/24"]}},
    ),
    "endpoint-unused": Example(path="cluster.endpoint.cidrs", found={f"{ENDPOINT}.cidrs": ["203.0.113.0/24"]}),
    "admin-named": Example(path="cluster.access.admin", found={"environment.cluster.access.admin": []}),
    "principal-once": Example(
        path="cluster.access.viewer[0]",
        found={"environment.cluster.access.viewer": [ADMIN]},
        passed={"environment.cluster.access.viewer": [f"{ADMIN}2"]},
    ),
    "example-leftover": Example(
        path="cluster.access.viewer[0]",
        found={"environment.cluster.access.viewer": ["arn:aws:iam::111122223333:role/Viewer"]},
        passed={"environment.cluster.access.viewer": ["arn:aws:iam::210987654321:role/111122223333000"]},
    ),
    "principal-own": Example(
        path="cluster.access.viewer[0]",
        found={"environment.cluster.access.viewer": ["arn:aws:iam::999999999999:role/Viewer"]},
        passed={"environment.cluster.access.viewer": ["arn:aws:iam::210987654321:role/Viewer"]},
    ),
    "price-own": Example(
        path="capacity.usd_per_hour_of",
        found={f"{CAPACITY}.usd_per_hour_of": "trn2.48xlarge spot"},
        passed={f"{CAPACITY}.usd_per_hour_of": "trn2.48xlarge capacity-block"},
    ),
    "boundary-name": Example(
        path="bootstrap.permissions_boundary",
        found={"environment.bootstrap.permissions_boundary": "arn:aws:iam::210987654321:policy/Boundary"},
        passed={"environment.bootstrap.permissions_boundary": "Boundary"},
    ),
    "repository-readable": Example(path="delivery.repo_url", found={"environment.delivery.repo_url": "https:///x"}),
    "repository-real": Example(
        path="delivery.repo_url",
        found={"environment.delivery.repo_url": "https://git.example.com/x.git"},
        passed={"environment.delivery": {"kind": "cdk"}},
    ),
    "repository-secret": Example(
        path="delivery.repo_url",
        found={"environment.delivery.repo_url": "https://me:secret@git.acme.dev/x.git"},
        passed={"environment.delivery.repo_url": "ssh://git@git.acme.dev/x.git"},
    ),
    "path-own": Example(
        path="delivery.path",
        found={"twin.delivery": ENVIRONMENT["delivery"]},
        passed={"twin.delivery": {**ENVIRONMENT["delivery"], "path": "manifests/twin"}},
    ),
    "path-rendered": Example(
        path="delivery.path",
        found={"environment.delivery.path": "manifests"},
        passed={"environment.delivery.path": "clusters/environment"},
    ),
    "variants-sent": Example(
        path="experiments",
        found={"environment.delivery": {"kind": "cdk"}, "experiment.sweep": WIDE},
        passed={"experiment.sweep": WIDE},
    ),
    "subscription-endpoint": Example(
        path="observability.alarm_subscriptions[1].endpoint",
        found={SUBSCRIPTIONS: [MAIL, {"protocol": "https", "endpoint": "http://pager.acme.dev/hook"}]},
        passed={
            SUBSCRIPTIONS: [
                MAIL,
                {"protocol": "https", "endpoint": "https://pager.acme.dev/hook"},
                {"protocol": "sqs", "endpoint": "arn:aws:sqs:us-east-2:210987654321:pager"},
                {"protocol": "lambda", "endpoint": "arn:aws:lambda:us-east-2:210987654321:function:page:live"},
            ],
        },
    ),
    "alarms-heard": Example(path="observability.alarm_subscriptions", found={SUBSCRIPTIONS: []}),
    "subscription-once": Example(
        path="observability.alarm_subscriptions[1]",
        found={SUBSCRIPTIONS: [MAIL, MAIL]},
        passed={SUBSCRIPTIONS: [MAIL, {**MAIL, "endpoint": "manager@acme.dev"}]},
    ),
    "reference-experiment": Example(
        path="observability.reference.values[0].experiment",
        found=reference({**VALUE, "experiment": "pear"}),
        passed=reference(VALUE),
    ),
    "reference-variant": Example(
        path="observability.reference.values[0].variant",
        found=reference({**VALUE, "variant": "fest"}),
        passed=reference({**VALUE, "variant": "fast"}),
    ),
    "reference-acceptance": Example(
        path="observability.reference.values[0].acceptance_length",
        found=reference({**VALUE, "acceptance_length": 1.0}),
        passed=reference({**VALUE, "variant": "fast", "acceptance_length": 4.5}),
    ),
    "reference-figure": Example(
        path="observability.reference.values[0]",
        found=reference({**VALUE, "tpot_ms": None}),
        passed=reference({**VALUE, "tpot_ms": None, "ttft_ms": 180}),
    ),
    "reference-once": Example(
        path="observability.reference.values[1]",
        found=reference(VALUE, {**VALUE, "tpot_ms": 46}),
        passed=reference(VALUE, {**VALUE, "concurrency": 1}),
    ),
    "hosted-once": Example(path="experiments[1]", found={"environment.experiments": ["pair", "pair"]}),
    "environment-name": Example(
        path="name",
        found={"environment.name": "e" * 46},
        passed={"environment.name": "e" * 37},
        also=("path-rendered",),
    ),
    "experiment-name": Example(
        path="variants[1].name", found={f"{VARIANT}.name": "v" * 47}, passed={f"{VARIANT}.name": "v" * 46}
    ),
    "experiment-folder": Example(
        path="name", found={"experiment.name": "gitops"}, passed={"experiment.name": "gitops-2"}
    ),
    "environment-words": Example(
        path="name",
        found={"environment.name": "prod-notify"},
        passed={"environment.name": "prod-notifying"},
        also=("path-rendered",),
    ),
    "bucket-name": Example(
        path="artifacts.existing_bucket",
        found={"environment.artifacts.existing_bucket": "my..models"},
        passed={"environment.artifacts.existing_bucket": "my.models"},
    ),
    "bucket-key": Example(
        path="artifacts.kms_key_arn",
        found={"environment.artifacts.kms_key_arn": KEY.replace("us-east-2", "us-east-1")},
        passed={"environment.artifacts.kms_key_arn": KEY},
    ),
    "tags-fit": Example(
        path="tags.aws:team",
        found={"environment.tags": {"aws:team": "x"}},
        passed={"environment.tags": {"team": "research + more"}},
    ),
}  # fmt: skip
