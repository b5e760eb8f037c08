"""For every rule one example that it finds and one close by that it does not.

An example changes the clean pair of known.py, by dotted path to a value or DELETE, and the
catalogue, by a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

from known import DELETE, ENVIRONMENT, fig

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.environment import PLACEHOLDER_RESERVATION_ID
from tandem.declarations.runtime import Runtime

Changes = dict[str, Any]
Vary = Callable[[Catalogue], Catalogue]

EAST_1 = {
    "region": "us-east-1",
    "capacity.zone": "use1-az1",
    "network.zones": ["use1-az1", "use1-az2"],
}
OLD_IMAGE = {"cluster.ami_release": "1.36.2-20260714"}  # with driver 2.29
ADMIN = "arn:aws:iam::210987654321:role/Admin"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SAMPLE = {"file": "prompts/support.jsonl", "sha256": "a" * 64, "sample": 4}


@dataclass(frozen=True)
class Example:
    """What a rule finds and what it lets pass.

    Args:
        path: key path that the rule names.
        found, passed: changes of the clean pair.
        vary, vary_passed: change of the catalogue for either.
        also: other rules that the found change breaks too, each at a key of its own.
    """

    path: str
    found: Changes = field(default_factory=dict)
    passed: Changes = field(default_factory=dict)
    vary: Vary | None = None
    vary_passed: Vary | None = None
    also: tuple[str, ...] = ()


def runtime(name: str, change: Callable[[Runtime], dict[str, Any]]) -> Vary:
    """Return a change of one runtime's data."""

    def vary(catalogue: Catalogue) -> Catalogue:
        old = catalogue.runtimes[name]
        return with_fields(
            catalogue, runtimes={**catalogue.runtimes, name: old.model_copy(update=change(old))}
        )

    return vary


def mode(name: str, word: str, **update: Any) -> Vary:
    """Return a change of what one runtime says of one mode."""

    def change(old: Runtime) -> dict[str, Any]:
        modes = (
            each.model_copy(update=update) if each.mode == word else each for each in old.modes
        )
        return {"modes": tuple(modes)}

    return runtime(name, change)


def of_model(id_: str, **update: Any) -> Vary:
    """Return a change of one model's data."""
    return lambda catalogue: with_fields(
        catalogue, models={**catalogue.models, id_: catalogue.models[id_].model_copy(update=update)}
    )


def offered(kind: str, zone: str) -> Vary:
    """Return offerings of an instance type in one zone of us-east-2."""

    def vary(catalogue: Catalogue) -> Catalogue:
        table = {**catalogue.offerings.offerings, kind: {"us-east-2": fig((zone,))}}
        return with_fields(
            catalogue, offerings=catalogue.offerings.model_copy(update={"offerings": table})
        )

    return vary


def listed(region: str, zone: str) -> Vary:
    """Return offerings of the large instance type in one zone of a region."""

    def vary(catalogue: Catalogue) -> Catalogue:
        offerings = catalogue.offerings.offerings
        table = {**offerings, "trn2.48xlarge": {**offerings["trn2.48xlarge"], region: fig((zone,))}}
        return with_fields(
            catalogue, offerings=catalogue.offerings.model_copy(update={"offerings": table})
        )

    return vary


def like_small(name: str, **figures: Any) -> Vary:
    """Return an instance type like the small one, but for these figures."""

    def vary(catalogue: Catalogue) -> Catalogue:
        table = catalogue.instances.instances
        node = table["trn2.3xlarge"].model_copy(
            update={key: fig(value) for key, value in figures.items()}
        )
        instances = catalogue.instances.model_copy(update={"instances": {**table, name: node}})
        return with_fields(catalogue, instances=instances)

    return vary


def kubectl(minor: str) -> Vary:
    """Return another kubectl for the CDK to deliver with."""
    return lambda catalogue: with_fields(
        catalogue, kubernetes=catalogue.kubernetes.model_copy(update={"kubectl": fig(minor)})
    )


def no_digests(catalogue: Catalogue) -> Catalogue:
    """Forget every digest."""
    return with_fields(catalogue, digests=catalogue.digests.model_copy(update={"digests": {}}))


def no_billing_codes(catalogue: Catalogue) -> Catalogue:
    """Forget every region's billing code."""
    return with_fields(
        catalogue, offerings=catalogue.offerings.model_copy(update={"billing_codes": {}})
    )


def vulnerable(old: Runtime) -> dict[str, Any]:
    """Let an image have a known vulnerability."""
    vulnerabilities = old.image.vulnerabilities.model_copy(update={"value": "one HIGH"})
    return {"image": old.image.model_copy(update={"vulnerabilities": vulnerabilities})}


def native(**changes: Any) -> Changes:
    """Return Llama with an EAGLE3 head on the native runtime, after `changes` of the second
    variant."""
    variant = {
        "name": "fast",
        "mode": "eagle3",
        "draft": "made-up/eagle3",
        "num_speculative_tokens": 3,
        **changes,
    }
    return {
        "runtime": "native",
        "target": LLAMA,
        "serving.tensor_parallel_size": 32,
        "serving.max_num_seqs": 2,
        "variants[1]": {key: value for key, value in variant.items() if value is not DELETE},
    }


def small(**changes: Any) -> Changes:
    """Return a clean pair on one chip of a trn2.3xlarge, after `changes` of the serving
    settings."""
    serving = {
        "tensor_parallel_size": 4,
        "devices": 1,
        "device_group": None,
        "cpu": 10,
        "memory_gib": 96,
        **changes,
    }
    return {
        "capacity.instance_type": "trn2.3xlarge",
        "capacity.kind": "spot",
        "capacity.reservation_id": None,
        **{f"serving.{key}": value for key, value in serving.items()},
        "compile": DELETE,
    }


def eagle(draft: str, **more: Any) -> Changes:
    """Return Llama with an EAGLE head on nxdi-v0."""
    return {"target": LLAMA, "variants[1].mode": "eagle", "variants[1].draft": draft, **more}


PLAIN = native(mode="none", draft=DELETE, num_speculative_tokens=DELETE)
EXISTING = {
    "kind": "existing",
    "vpc_id": "vpc-0123456789abcdef0",
    "cidr": "100.64.0.0/16",
    "subnets": [{"id": f"subnet-{index}0000000", "zone": f"use2-az{index}"} for index in (1, 2, 3)],
}
MIRRORS = {"public.ecr.aws": "mirror.acme.dev/public", "registry.k8s.io": "mirror.acme.dev/k8s"}
SWEEP = {
    "prefix": "swept",
    "mode": "fused",
    "drafts": ["Qwen/Qwen3-0.6B"],
    "num_speculative_tokens": [15],
}

WIDE = {**SWEEP, "num_speculative_tokens": list(range(2, 31))}
INDEX = "https://index.acme.dev/simple"
HUB = {"endpoint": "https://hub.acme.dev"}
BLOCK = {"starts": "2026-12-01T11:30:00Z", "ends": "2026-12-08T11:30:00Z"}
BLOCKED = {"capacity.block": BLOCK}
CLOSED = {"network.nat": "none", "registry_mirrors": MIRRORS}
PUBLIC = {"cluster.endpoint.access": "public"}
PARALLEL = {"serving.tuning.sequence_parallel_enabled": True}
CACHES = {
    published: f"210987654321.dkr.ecr.us-east-2.amazonaws.com/{prefix}"
    for published, prefix in (("public.ecr.aws", "public"), ("registry.k8s.io", "k8s"))
}
KEY = "arn:aws:kms:us-east-2:210987654321:key/01234567-89ab-cdef-0123-456789abcdef"
MAIL = {"protocol": "email", "endpoint": "oncall@acme.dev"}
VALUE = {
    "experiment": "pair",
    "variant": "plain",
    "prompt_class": "json",
    "concurrency": 4,
    "tpot_ms": 45,
}


def spoil(
    path: str,
    found: Any,
    passed: Any = DELETE,
    *,
    key: str = "",
    base: Changes | None = None,
    **more: Any,
) -> Example:
    """Return an example of one value that is found and of another that passes; none: the clean
    pair's own.

    The values are those of `key`: by default the path, without the index of a value that is found
    in a list. Both files have the changes of `base` too.
    """
    key = key or re.sub(r"\[\d+\]$", "", path)
    base = base or {}
    return Example(
        path, {**base, key: found}, base if passed is DELETE else {**base, key: passed}, **more
    )


def reference(*values: dict[str, Any]) -> Changes:
    """Return a reference run with these values."""
    return {"observability.reference": {"run": "20261121T101500Z-0123abcd", "values": list(values)}}


EXAMPLES: dict[str, Example] = {
    "region-offers-type": Example(
        "region",
        {
            "region": "us-west-2",
            "capacity.zone": "usw2-az1",
            "network.zones": ["usw2-az1", "usw2-az2"],
        },
    ),
    "zone-listed": spoil("network.zones[1]", ["use2-az3", "use2-az9"], key="network.zones"),
    "zone-takes-cluster": Example(
        "network.zones[1]",
        {**EAST_1, "network.zones": ["use1-az1", "use1-az3"]},
        EAST_1,
        vary=listed("us-east-1", "use1-az1"),
        vary_passed=listed("us-east-1", "use1-az1"),
    ),
    "zone-offers-type": spoil("capacity.zone", "use2-az2", "use2-az1"),
    "zone-of-region": Example("network.zones[1]", {"network.zones": ["use2-az3", "usw2-az1"]}),
    "zone-has-subnet": Example("capacity.zone", {"network.zones": ["use2-az1", "use2-az2"]}),
    "system-nodes-offered": Example(
        "cluster.system_nodes.instance_type",
        vary=offered("m7i.xlarge", "use2-az4"),
        vary_passed=offered("m7i.xlarge", "use2-az1"),
    ),
    "system-nodes-hold": Example(
        "cluster.system_nodes",
        vary=like_small("m7i.xlarge", allocatable_cpu_m=2124, allocatable_memory_mib=14162),
        vary_passed=like_small("m7i.xlarge", allocatable_cpu_m=2125, allocatable_memory_mib=14162),
    ),
    "capacity-kind": Example(
        "capacity.kind",
        {
            **small(),
            "capacity.kind": "reservation",
            "capacity.reservation_id": "cr-0123456789abcdef0",
        },
        small(),
        also=("compile-memory",),
    ),
    "reservation-given": spoil("capacity.reservation_id", PLACEHOLDER_RESERVATION_ID),
    "reservation-used": spoil(
        "capacity.reservation_id", "cr-0123456789abcdef0", None, base={"capacity.kind": "spot"}
    ),
    "reservation-own": spoil(
        "capacity.reservation_id",
        "cr-0123456789abcdef0",
        "cr-0123456789abcdef1",
        key="twin.capacity.reservation_id",
    ),
    "block-kind": Example(
        "capacity.block",
        {"capacity.kind": "reservation", "capacity.block": BLOCK},
        {"capacity.block": BLOCK},
    ),
    "block-order": spoil(
        "capacity.block.ends", BLOCK["starts"], "2026-12-01T11:31:00Z", base=BLOCKED
    ),
    "block-length": spoil(
        "capacity.block.ends", "2027-06-02T11:31:00Z", "2027-06-02T11:30:00Z", base=BLOCKED
    ),
    "hours-in-block": spoil(
        "guard.max_hours",
        25,
        24,
        base={"capacity.block": {**BLOCK, "ends": "2026-12-02T11:30:00Z"}},
    ),
    "block-over": Example(
        "capacity.block.ends",
        {"capacity.block": {"starts": "2026-11-21T11:30:00Z", "ends": "2026-11-22T11:30:00Z"}},
        {"capacity.block": {"starts": "2026-11-21T11:30:00Z", "ends": "2026-11-22T12:01:00Z"}},
    ),
    "price-to-come": spoil("capacity.usd_per_hour_date", "2026-11-24", "2026-11-23"),
    "account-real": spoil("account", "111122223333", also=("principal-own",)),
    "budget-holds-run": spoil("guard.budget_usd", 286, 287),
    "budget-by-hand": Example(
        "region",
        {
            **small(),
            "region": "ap-southeast-4",
            "capacity.zone": "apse4-az3",
            "network.zones": ["apse4-az1", "apse4-az3"],
        },
        small(),
        also=("compile-memory",),
    ),
    "billing-code": Example("region", vary=no_billing_codes),
    "storage-price-dated": spoil(
        "artifacts.usd_per_gb_month_date",
        None,
        "2026-11-21",
        base={"artifacts.usd_per_gb_month": 0.02},
    ),
    "idle-before-max": spoil(
        "guard.idle_minutes", 60, 59, base={"guard.max_hours": 1}, also=("compile-before-guard",)
    ),
    "efa-needless": spoil("capacity.efa", True),
    "kubernetes-floor": spoil("cluster.kubernetes", "1.34"),
    "kubernetes-known": spoil("cluster.kubernetes", "1.38"),
    "kubernetes-behind": spoil("cluster.kubernetes", "1.35"),
    "node-image-pinned": spoil(
        "cluster.kubernetes", "1.37", also=("addons-pinned", "driver-released")
    ),
    "node-image-minor": spoil(
        "cluster.ami_release", "1.35.6-20260714", "1.36.4-20261003", also=("driver-released",)
    ),
    "addons-pinned": spoil(
        "cluster.kubernetes", "1.37", also=("node-image-pinned", "driver-released")
    ),
    "driver-starts": Example("experiments[0]", OLD_IMAGE, {**OLD_IMAGE, **native()}),
    "driver-released": Example("experiments[0]", {**OLD_IMAGE, **native()}, native()),
    "runtime-supported": Example(
        "runtime", vary=runtime("nxdi-v0", lambda _: {"support_ends": fig("Neuron 2.34")})
    ),
    "images-pinned": Example("experiments", vary=no_digests),
    "kubectl-skew": Example(
        "cluster.kubernetes",
        {"delivery": {"kind": "cdk"}},
        {"delivery": {"kind": "cdk"}},
        vary=kubectl("1.34"),
        vary_passed=kubectl("1.35"),
    ),
    "capabilities-few": spoil(
        "serving.capabilities", "neuron", "runtime-default", key="environment.serving.capabilities"
    ),
    "mirrors-complete": spoil(
        "registry_mirrors", {"public.ecr.aws": "mirror.acme.dev/public"}, MIRRORS
    ),
    "hub-reached": Example("hub.endpoint", CLOSED, {**CLOSED, "hub": HUB}),
    "mirrors-closed": spoil(
        "registry_mirrors", {}, MIRRORS, base={"network.nat": "none", "hub": HUB}
    ),
    "mirrors-seeded": spoil(
        "registry_mirrors", CACHES, MIRRORS, base={"network.nat": "none", "hub": HUB}
    ),
    "builds-reach": spoil(
        "builds_in_vpc", True, False, base={**CLOSED, "hub": HUB, "package_index": INDEX}
    ),
    "range-valid": spoil("network.cidr", "10.42.0.1/16", "10.42.0.0/16"),
    "range-size": spoil("network.cidr", "10.42.0.0/24", "10.42.0.0/20"),
    "range-private": Example("network.cidr", {"network.cidr": "8.8.0.0/16"}, {"network": EXISTING}),
    "zones-two": spoil("network.zones", ["use2-az3", "use2-az3"]),
    "subnet-once": Example(
        "network.zones[2]", {"network.zones": ["use2-az1", "use2-az3", "use2-az3"]}
    ),
    "control-plane-zones": spoil(
        "network.control_plane_subnets",
        [{"id": f"subnet-a000000{number}", "zone": "use2-az1"} for number in (1, 2)],
        [{"id": f"subnet-a000000{number}", "zone": f"use2-az{number}"} for number in (1, 2)],
        base={"network": EXISTING},
    ),
    "subnet-zone": spoil(
        "network.control_plane_subnets[0].zone",
        "use2-az3",
        "use2-az1",
        base={
            "network": {
                **EXISTING,
                "control_plane_subnets": [
                    {"id": f"subnet-{index}0000000", "zone": f"use2-az{index}"} for index in (1, 2)
                ],
            }
        },
    ),
    "nat-zone": spoil("network.nat_zone", "use2-az4", "use2-az2"),
    "ranges-apart": spoil(
        "network.secondary_cidrs[0]",
        ["100.64.4.0/22"],
        ["100.65.0.0/16"],
        base={"network": EXISTING},
    ),
    "closed-needs-endpoints": spoil(
        "network.interface_endpoints", False, base={**CLOSED, "hub": HUB}
    ),
    "clients-private": spoil(
        "cluster.endpoint.clients[0]",
        ["203.0.113.0/24"],
        ["10.8.0.0/16", "100.64.0.0/10", "sg-0123456789abcdef0"],
    ),
    "endpoint-named": spoil("cluster.endpoint.cidrs", [], ["203.0.113.0/24"], base=PUBLIC),
    "endpoint-open": spoil(
        "cluster.endpoint.cidrs[0]", ["0.0.0.0/0"], ["203.0.113.0/24"], base=PUBLIC
    ),
    "endpoint-routed": spoil(
        "cluster.endpoint.cidrs[1]",
        ["203.0.113.0/24", "10.0.0.0/8"],
        ["203.0.113.0/24"],
        base=PUBLIC,
    ),
    "endpoint-unused": spoil("cluster.endpoint.cidrs", ["203.0.113.0/24"]),
    "admin-named": spoil("cluster.access.admin", []),
    "principal-once": spoil("cluster.access.viewer[0]", [ADMIN], [f"{ADMIN}2"]),
    "environment-texts": spoil("delivery.revision", "0o17", "0o18"),
    "example-leftover": Example(
        "cluster.access.viewer[0]",
        {"cluster.access.viewer": ["arn:aws:iam::111122223333:role/Viewer"]},
        {"cluster.access.viewer": ["arn:aws:iam::210987654321:role/111122223333000"]},
    ),
    "principal-partition": spoil(
        "cluster.access.viewer[0]",
        ["arn:aws-cn:iam::210987654321:role/Viewer"],
        ["arn:aws:iam::210987654321:role/Viewer"],
    ),
    "principal-path": spoil(
        "cluster.access.viewer[0]",
        ["arn:aws:iam::210987654321:role/AWSReservedSSO_View_1f9ff11932198c00"],
        [
            "arn:aws:iam::210987654321:role/aws-reserved/sso.amazonaws.com/eu-west-1/AWSReservedSSO_View_1f9ff119321",
            "arn:aws:iam::210987654321:role/aws-reserved/sso.amazonaws.com/AWSReservedSSO_Run_1f9ff11932198c00",
        ],
    ),
    "principal-own": spoil(
        "cluster.access.viewer[0]",
        ["arn:aws:iam::999999999999:role/Viewer"],
        ["arn:aws:iam::210987654321:role/Viewer"],
    ),
    "price-own": spoil(
        "capacity.usd_per_hour_of", "trn2.48xlarge spot", "trn2.48xlarge capacity-block"
    ),
    "boundary-name": spoil(
        "bootstrap.permissions_boundary", "arn:aws:iam::210987654321:policy/b/Limit", "b/Limit"
    ),
    "repository-readable": spoil("delivery.repo_url", "https:///x"),
    "repository-real": Example(
        "delivery.repo_url",
        {"delivery.repo_url": "https://git.example.com/x.git"},
        {"delivery": {"kind": "cdk"}},
    ),
    "repository-secret": spoil(
        "delivery.repo_url", "https://me:secret@git.acme.dev/x.git", "ssh://git@git.acme.dev/x.git"
    ),
    "path-own": Example(
        "delivery.path",
        {"twin.delivery": ENVIRONMENT["delivery"]},
        {"twin.delivery": {**ENVIRONMENT["delivery"], "path": "manifests/twin"}},
    ),
    "path-rendered": spoil("delivery.path", "manifests", "clusters/environment"),
    "variants-sent": Example(
        "experiments", {"delivery": {"kind": "cdk"}, "sweep": WIDE}, {"sweep": WIDE}
    ),
    "subscription-endpoint": Example(
        "observability.alarm_subscriptions[1].endpoint",
        {
            "observability.alarm_subscriptions": [
                MAIL,
                {"protocol": "https", "endpoint": "http://pager.acme.dev/hook"},
            ]
        },
        {
            "observability.alarm_subscriptions": [
                MAIL,
                {"protocol": "https", "endpoint": "https://pager.acme.dev/hook"},
                {"protocol": "sqs", "endpoint": "arn:aws:sqs:us-east-2:210987654321:pager"},
                {
                    "protocol": "lambda",
                    "endpoint": "arn:aws:lambda:us-east-2:210987654321:function:page:live",
                },
            ]
        },
    ),
    "alarms-heard": spoil("observability.alarm_subscriptions", []),
    "subscription-once": spoil(
        "observability.alarm_subscriptions[1]",
        [MAIL, MAIL],
        [MAIL, {**MAIL, "endpoint": "manager@acme.dev"}],
    ),
    "reference-experiment": spoil(
        "observability.reference.values[0].experiment", "pear", "pair", base=reference(VALUE)
    ),
    "reference-variant": spoil(
        "observability.reference.values[0].variant", "fest", "fast", base=reference(VALUE)
    ),
    "reference-acceptance": Example(
        "observability.reference.values[0].acceptance_length",
        reference({**VALUE, "acceptance_length": 1.0}),
        reference({**VALUE, "variant": "fast", "acceptance_length": 4.5}),
    ),
    "reference-figure": Example(
        "observability.reference.values[0]",
        reference({**VALUE, "tpot_ms": None}),
        reference({**VALUE, "tpot_ms": None, "ttft_ms": 180}),
    ),
    "reference-once": Example(
        "observability.reference.values[1]",
        reference(VALUE, {**VALUE, "tpot_ms": 46}),
        reference(VALUE, {**VALUE, "concurrency": 1}),
    ),
    "hosted-once": Example("experiments[1]", {"experiments": ["pair", "pair"]}),
    "environment-name": spoil(
        "name", "e" * 46, "e" * 37, key="environment.name", also=("path-rendered",)
    ),
    "experiment-name": spoil("variants[1].name", "v" * 47, "v" * 46),
    "experiment-folder": spoil("name", "gitops", "gitops-2", key="experiment.name"),
    "environment-words": spoil(
        "name", "prod-notify", "prod-notifying", key="environment.name", also=("path-rendered",)
    ),
    "bucket-name": spoil("artifacts.existing_bucket", "my..models", "my.models"),
    "bucket-key": spoil("artifacts.kms_key_arn", KEY.replace("us-east-2", "us-east-1"), KEY),
    "tags-once": Example(
        "tags.Project",
        {"tags": {"project": "x", "Project": "y"}},
        {"tags": {"project": "x", "project-2": "y"}},
    ),
    "tags-name": Example("tags.Name", {"tags": {"Name": "x"}}, {"tags": {"name-of-team": "x"}}),
    "log-key": spoil("log_kms_key_arn", KEY.replace("us-east-2", "us-east-1"), KEY),
    "tags-fit": Example(
        "tags.aws:team", {"tags": {"aws:team": "x"}}, {"tags": {"team": "research + more"}}
    ),
    "runtime-known": spoil("runtime", "nxdi-v9"),
    "runtime-rendered": spoil("runtime", "nxdi-v1"),
    "target-family": Example(
        "target", {"target": "made-up/moe"}, eagle("made-up/eagle-whole"), also=("draft-family",)
    ),
    "target-unproven": Example("target", {**PLAIN, "target": "made-up/llama-9B"}, native()),
    "target-unproven-accepted": Example(
        "target",
        {**PLAIN, "target": "made-up/llama-9B", "accept_unproven": True},
        {**native(), "accept_unproven": True},
    ),
    "image-vulnerable": Example("runtime", vary=runtime("nxdi-v0", vulnerable)),
    "target-known": spoil("target", "Qwen/Qwen3-23B"),
    "target-kind": spoil("target", "made-up/medusa"),
    "draft-known": spoil("variants[1].draft", "Qwen/Qwen3-1.6B"),
    "draft-by-mode": spoil("variants[1].draft", None),
    "draft-kind": spoil("variants[1].draft", "made-up/eagle3-qwen"),
    "model-unpinned": Example(
        "variants[1].draft", vary=of_model("Qwen/Qwen3-1.7B", revision=fig(None))
    ),
    "model-gated": Example(
        "target",
        {"hub": {"token_secret": "tandem/hub"}},
        vary=of_model("Qwen/Qwen3-32B", gated=fig(True)),
    ),
    "mode-served": Example(
        "variants[1].mode", {"variants[1].mode": "vanilla"}, eagle("made-up/eagle-whole")
    ),
    "mode-batch": Example(
        "serving.max_num_seqs",
        vary=mode("nxdi-v0", "fused", max_num_seqs=fig(2)),
        vary_passed=mode("nxdi-v0", "fused", max_num_seqs=fig(4)),
    ),
    "mode-unproven": Example(
        "variants[1].mode",
        {
            "runtime": "native",
            "variants[1].mode": "eagle3",
            "variants[1].draft": "made-up/eagle3-qwen",
            "serving.max_num_seqs": 2,
        },
        native(),
    ),
    "mode-unproven-accepted": Example(
        "variants[1].mode",
        {"accept_unproven": True},
        vary=mode("nxdi-v0", "fused", verdict=fig("unproven")),
    ),
    "tokens-by-mode": spoil("variants[1].num_speculative_tokens", None),
    "method-read": Example(
        "variants[1].method", {"variants[1].method": "eagle"}, native(method="eagle3")
    ),
    "window-gains": Example(
        "variants[1].num_speculative_tokens",
        {"variants[1].num_speculative_tokens": 1},
        native(num_speculative_tokens=1),
    ),
    "window-long": Example(
        "variants[1].num_speculative_tokens",
        {"variants[1].num_speculative_tokens": 11},
        {"sweep": SWEEP},
    ),
    "sweep-declared": Example("goodput", {"sweep": SWEEP, "goodput": DELETE}, {"sweep": SWEEP}),
    "claims-suite": Example("claims", {"claims": "post", "suites": ["real"]}, {"claims": "post"}),
    "task-set": Example(
        "quality[0].sha256",
        {"quality": [{"name": "letters"}]},
        {"quality": [{"name": "letters", "sha256": "0" * 64}]},
    ),
    "concurrency-served": Example(
        "concurrency[1]", {"concurrency": [1, 8]}, {"concurrency": [1, 4]}
    ),
    "batch-shown": spoil("serving.max_num_seqs", 8, 4),
    "baseline": Example(
        "variants",
        {
            "variants[0]": {
                "name": "plain",
                "mode": "fused",
                "draft": "Qwen/Qwen3-0.6B",
                "num_speculative_tokens": 5,
            }
        },
        {"variants[1]": {"name": "control", "mode": "none"}},
    ),
    "two-variants": spoil("variants", [{"name": "plain", "mode": "none"}]),
    "variant-once": spoil("variants[1].name", "plain"),
    "suite-once": Example(
        "suites[2]", {"suites": ["post", "real", "post"]}, {"suites": ["post", "real"]}
    ),
    "sample-classes": Example(
        "suites[0].classes",
        {"suites": [SAMPLE | {"classes": {"billing": 4, "support": 4}}]},
        {"suites": [SAMPLE | {"classes": {"billing": 3, "support": 1}}]},
    ),
    "tokenizer-equal": Example(
        "variants[1].draft",
        {"target": LLAMA, "variants[1].draft": "Qwen/Qwen3-1.7B"},
        {"target": LLAMA, "variants[1].draft": "meta-llama/Llama-3.2-1B"},
        also=("draft-family",),
    ),
    "vocabulary-equal": spoil("variants[1].draft", "made-up/other-rows"),
    "draft-family": spoil("variants[1].draft", "made-up/other-family"),
    "draft-smaller": spoil("variants[1].draft", "Qwen/Qwen3-32B"),
    "head-of-target": Example("variants[1].draft", native(draft="made-up/eagle3-qwen"), native()),
    "head-hidden-size": Example(
        "variants[1].draft", native(draft="made-up/eagle3-narrow"), native()
    ),
    "head-vocabulary": Example(
        "variants[1].draft",
        eagle("made-up/eagle"),
        eagle("made-up/eagle-whole"),
        also=("head-output",),
    ),
    "head-output": Example("variants[1].draft", eagle("made-up/eagle-whole"), native()),
    "length-holds": Example(
        "serving.max_model_len", {"max_prompt_tokens": 418}, {"max_prompt_tokens": 417}
    ),
    "length-made-for": Example("serving.max_model_len", {"variants[1].draft": "made-up/short"}),
    "length-tiled": Example(
        "serving.max_model_len",
        {"serving.max_model_len": 1025},
        {**native(), "serving.max_model_len": 1025},
    ),
    "buckets-ascend": spoil(
        "serving.tuning.context_encoding_buckets", [512, 256, 1024], [256, 512, 1024]
    ),
    "buckets-complete": spoil("serving.tuning.num_seqs_buckets", [1], [1, 2], base=native()),
    "kernels-short": spoil(
        "serving.tuning.mlp_kernel_enabled",
        1024,
        2048,
        key="serving.max_model_len",
        base={"serving.tuning.mlp_kernel_enabled": True},
    ),
    "tuning-read": Example(
        "serving.tuning.optimization_level",
        {"serving.tuning.optimization_level": 2},
        {**native(), "serving.tuning.optimization_level": 2},
    ),
    "async-alike": Example(
        "serving.async_mode", {**native(), "serving.async_mode": True}, native()
    ),
    "async-plain": spoil("serving.async_mode", True),
    "compile-mode": Example(
        "compile.where",
        {**native(), "compile.where": "cpu", "accept_unproven": True},
        {"compile.where": "cpu", "accept_unproven": True},
        also=("compile-unproven-accepted",),
    ),
    "compile-unproven": spoil("compile.where", "cpu", "device"),
    "compile-unproven-accepted": Example(
        "compile.where", {"compile.where": "cpu", "accept_unproven": True}
    ),
    "compile-shm": spoil("compile.memory_gib", 16, 17, also=("compile-memory",)),
    "compile-fits": Example(
        "experiments[0]", {"compile.cpu": 191}, {"compile": {"cpu": 190, "memory_gib": 1891}}
    ),
    "compile-memory": Example(
        "compile.memory_gib",
        {"compile.memory_gib": 699},
        {**native(), "compile.memory_gib": DELETE},
    ),
    "compiles-side-by-side": Example(
        "experiments[0]", {"compile.memory_gib": 946}, {"compile.memory_gib": 945}
    ),
    "disk-fits": Example(
        "experiments[0]",
        small(),
        small(),
        vary=like_small("trn2.3xlarge", nvme_gb=370),
        vary_passed=like_small("trn2.3xlarge", nvme_gb=380),
        also=("compile-memory",),
    ),
    "compile-before-guard": Example(
        "experiments[0]", {"compile.deadline_hours": 8}, {"compile.deadline_hours": 7}
    ),
    "sequence-divides": spoil(
        "serving.tuning.sequence_parallel_enabled",
        [72, 1024],
        key="serving.tuning.context_encoding_buckets",
        base=PARALLEL,
    ),
    "eagle-sequence": Example(
        "serving.tuning.sequence_parallel_enabled",
        eagle("made-up/eagle-whole", **PARALLEL),
        PARALLEL,
        also=("head-output",),
    ),
    "hub-token": Example(
        "experiments[0]",
        vary=of_model("Qwen/Qwen3-32B", gated=fig(True)),
        passed={"hub": {"token_secret": "tandem/hub"}},
        vary_passed=of_model("Qwen/Qwen3-32B", gated=fig(True)),
        also=("model-gated",),
    ),
    "cores-present": spoil(
        "serving.tensor_parallel_size",
        2,
        1,
        key="serving.logical_neuron_core",
        base={"serving.tensor_parallel_size": 64},
    ),
    "cores-idle": Example(
        "serving.tensor_parallel_size",
        {"serving.tensor_parallel_size": 16},
        {"serving.tensor_parallel_size": 16, "serving.devices": 4, "serving.cpu": 45},
    ),
    "degree-divides": Example(
        "serving.tensor_parallel_size", {"variants[1].draft": "made-up/odd-width"}
    ),
    "degree-pads": Example(
        "serving.tensor_parallel_size", vary=of_model("Qwen/Qwen3-32B", attention_heads=fig(40))
    ),
    "group-holds": spoil("serving.device_group", 4),
    "device-count": Example(
        "experiments[0]",
        {
            "serving.devices": 2,
            "serving.tensor_parallel_size": 8,
            "serving.cpu": 20,
            "serving.memory_gib": 200,
        },
        {"serving.devices": 4, "serving.tensor_parallel_size": 16, "serving.cpu": 45},
    ),
    "cores-bound": Example(
        "experiments[0]",
        small(devices=4, tensor_parallel_size=16),
        small(),
        also=("device-count", "compile-memory"),
    ),
    "group-published": Example(
        "experiments[0]", small(device_group=4), small(), also=("compile-memory",)
    ),
    "group-named": Example("experiments[0]", {"serving.device_group": 16}),
    "shm-in-memory": spoil("serving.shm_gib", 256, 255),
    "cpu-fits": Example(
        "experiments[0]", {"serving.cpu": 96}, {"serving.cpu": 95}, also=("compiles-side-by-side",)
    ),
    "memory-fits": Example(
        "experiments[0]", {"serving.memory_gib": 947}, {"serving.memory_gib": 945}
    ),
    "device-memory": Example(
        "experiments[0]",
        vary=of_model("Qwen/Qwen3-32B", bytes=fig(900000000000)),
        vary_passed=of_model("Qwen/Qwen3-32B", bytes=fig(700000000000)),
    ),
    "arms-at-once": Example(
        "experiments[0]", {"schedule": "simultaneous", "sweep": SWEEP}, {"schedule": "simultaneous"}
    ),
}
