"""For every rule one example that it finds, and one close by that it does not.

Each is a change of the clean pair in known.py: dotted path to a value, DELETE, or for `catalogue` a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

from known import DELETE, ENVIRONMENT, fig

from tandem.spec.catalogue import Catalogue
from tandem.spec.environment import PLACEHOLDER_RESERVATION_ID
from tandem.spec.runtime import Runtime

Changes = dict[str, Any]
Vary = Callable[[Catalogue], Catalogue]

ADMIN = "arn:aws:iam::210987654321:role/Admin"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
VARIANT = "experiment.variants[1]"
SERVING = "experiment.serving"
CAPACITY = "environment.capacity"
ENDPOINT = "environment.cluster.endpoint"
TUNING = f"{SERVING}.tuning"


@dataclass(frozen=True, kw_only=True)
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
        return with_fields(catalogue, runtimes={**catalogue.runtimes, name: old.model_copy(update=change(old))})

    return vary


def mode(name: str, word: str, **update: Any) -> Vary:
    """Return a change of what one runtime says of one mode."""

    def change(old: Runtime) -> dict[str, Any]:
        modes = (each.model_copy(update=update) if each.mode == word else each for each in old.modes)
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
        return with_fields(catalogue, offerings=catalogue.offerings.model_copy(update={"offerings": table}))

    return vary


def cited(value: Any, source: str) -> Any:
    """Return a figure of a real runtime file's source."""
    return fig(value).model_copy(update={"source": source})


def _no_digests(catalogue: Catalogue) -> Catalogue:
    return with_fields(catalogue, digests=catalogue.digests.model_copy(update={"digests": {}}))


def _vulnerable(old: Runtime) -> dict[str, Any]:
    vulnerabilities = old.image.vulnerabilities.model_copy(update={"value": "one HIGH"})
    return {"image": old.image.model_copy(update={"vulnerabilities": vulnerabilities})}


def native(**changes: Any) -> Changes:
    """Return Llama with an EAGLE3 head on the native runtime, after `changes` of the second variant."""
    variant = {"name": "fast", "mode": "eagle3", "draft": "made-up/eagle3", "num_speculative_tokens": 3, **changes}
    return {
        "experiment.runtime": "native", "experiment.target": LLAMA, f"{SERVING}.tensor_parallel_size": 32,
        VARIANT: {key: value for key, value in variant.items() if value is not DELETE},
    }  # fmt: skip


def small(**changes: Any) -> Changes:
    """Return a clean pair on one chip of a trn2.3xlarge, after `changes` of the serving settings."""
    serving = {"tensor_parallel_size": 4, "devices": 1, "device_group": None, "cpu": 10, "memory_gib": 96, **changes}
    return {
        f"{CAPACITY}.instance_type": "trn2.3xlarge", f"{CAPACITY}.kind": "spot", f"{CAPACITY}.reservation_id": None,
        **{f"{SERVING}.{key}": value for key, value in serving.items()},
    }  # fmt: skip


def eagle(draft: str, **more: Any) -> Changes:
    """Return Llama with an EAGLE head on nxdi-v0."""
    return {"experiment.target": LLAMA, f"{VARIANT}.mode": "eagle", f"{VARIANT}.draft": draft, **more}


PLAIN = native(mode="none", draft=DELETE, num_speculative_tokens=DELETE)
EXISTING = {
    "kind": "existing", "vpc_id": "vpc-0123456789abcdef0", "cidr": "100.64.0.0/16",
    "subnets": [{"id": f"subnet-{index}0000000", "zone": f"use2-az{index}"} for index in (1, 2, 3)],
}  # fmt: skip
MIRRORS = {"public.ecr.aws": "mirror.acme.dev/public", "registry.k8s.io": "mirror.acme.dev/k8s"}
SWEEP = {"prefix": "swept", "mode": "fused", "drafts": ["Qwen/Qwen3-0.6B"], "num_speculative_tokens": [15]}

EXAMPLES: dict[str, Example] = {
    "runtime-known": Example(path="runtime", found={"experiment.runtime": "nxdi-v9"}),
    "runtime-rendered": Example(path="runtime", found={"experiment.runtime": "nxdi-v1"}),
    "target-family": Example(
        path="target",
        found={"experiment.target": "made-up/moe"},
        also=("draft-family",),
        passed=eagle("made-up/eagle-whole"),
    ),
    "target-unproven": Example(
        path="target",
        found={**PLAIN, "experiment.target": "made-up/llama-9B"},
        passed=native(),
    ),
    "target-unproven-accepted": Example(
        path="target",
        found={**PLAIN, "experiment.target": "made-up/llama-9B", "experiment.accept_unproven": True},
        passed={**native(), "experiment.accept_unproven": True},
    ),
    "image-vulnerable": Example(path="runtime", vary=runtime("nxdi-v0", _vulnerable)),
    "target-known": Example(path="target", found={"experiment.target": "Qwen/Qwen3-23B"}),
    "target-kind": Example(path="target", found={"experiment.target": "made-up/medusa"}),
    "draft-known": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "Qwen/Qwen3-1.6B"}),
    "draft-by-mode": Example(path="variants[1].draft", found={f"{VARIANT}.draft": None}),
    "draft-kind": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "made-up/eagle3-qwen"}),
    "model-unpinned": Example(path="variants[1].draft", vary=of_model("Qwen/Qwen3-1.7B", revision=fig(None))),
    "model-gated": Example(path="target", vary=of_model("Qwen/Qwen3-32B", gated=fig(True))),
    "mode-served": Example(
        path="variants[1].mode", found={f"{VARIANT}.mode": "vanilla"}, passed=eagle("made-up/eagle-whole")
    ),
    "mode-batch": Example(
        path="serving.max_num_seqs",
        vary=mode("nxdi-v0", "fused", max_num_seqs=cited(2, "features")),
        vary_passed=mode("nxdi-v0", "fused", max_num_seqs=cited(4, "features")),
    ),
    "mode-unproven": Example(
        path="variants[1].mode",
        found={"experiment.runtime": "native", f"{VARIANT}.mode": "eagle3", f"{VARIANT}.draft": "made-up/eagle3-qwen"},
        passed=native(),
    ),
    "mode-unproven-accepted": Example(
        path="variants[1].mode",
        found={"experiment.accept_unproven": True},
        vary=mode("nxdi-v0", "fused", verdict=cited("unproven", "loader")),
    ),
    "tokens-by-mode": Example(
        path="variants[1].num_speculative_tokens", found={f"{VARIANT}.num_speculative_tokens": None}
    ),
    "method-read": Example(
        path="variants[1].method", found={f"{VARIANT}.method": "eagle"}, passed=native(method="eagle3")
    ),
    "window-gains": Example(
        path="variants[1].num_speculative_tokens",
        found={f"{VARIANT}.num_speculative_tokens": 1},
        passed=native(num_speculative_tokens=1),
    ),
    "window-long": Example(
        path="variants[1].num_speculative_tokens",
        found={f"{VARIANT}.num_speculative_tokens": 11},
        passed={"experiment.sweep": SWEEP},
    ),
    "fused-batch": Example(
        path="serving.max_num_seqs", found={f"{SERVING}.max_num_seqs": 8}, passed={f"{SERVING}.max_num_seqs": 4}
    ),
    "baseline": Example(
        path="variants",
        found={
            "experiment.variants[0]": {
                "name": "plain", "mode": "fused", "draft": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 5,
            },
        },
        passed={"experiment.variants[1]": {"name": "control", "mode": "none"}},
    ),
    "two-variants": Example(path="variants", found={"experiment.variants": [{"name": "plain", "mode": "none"}]}),
    "variant-once": Example(path="variants[1].name", found={f"{VARIANT}.name": "plain"}),
    "suite-once": Example(
        path="suites[2]",
        found={"experiment.suites": ["post", "real", "post"]},
        passed={"experiment.suites": ["post", "real"]},
    ),
    "tokenizer-equal": Example(
        path="variants[1].draft",
        found={"experiment.target": LLAMA, f"{VARIANT}.draft": "Qwen/Qwen3-1.7B"},
        passed={"experiment.target": LLAMA, f"{VARIANT}.draft": "meta-llama/Llama-3.2-1B"},
        also=("draft-family",),
    ),
    "vocabulary-equal": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "made-up/other-rows"}),
    "draft-family": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "made-up/other-family"}),
    "draft-smaller": Example(path="variants[1].draft", found={f"{VARIANT}.draft": "Qwen/Qwen3-32B"}),
    "head-of-target": Example(
        path="variants[1].draft", found=native(draft="made-up/eagle3-qwen"), passed=native()
    ),
    "head-hidden-size": Example(
        path="variants[1].draft", found=native(draft="made-up/eagle3-narrow"), passed=native()
    ),
    "head-vocabulary": Example(
        path="variants[1].draft", found=eagle("made-up/eagle"), passed=eagle("made-up/eagle-whole")
    ),
    "length-holds": Example(
        path="serving.max_model_len",
        found={"experiment.max_prompt_tokens": 418},
        passed={"experiment.max_prompt_tokens": 417},
    ),
    "length-made-for": Example(path="serving.max_model_len", found={f"{VARIANT}.draft": "made-up/short"}),
    "length-tiled": Example(
        path="serving.max_model_len",
        found={f"{SERVING}.max_model_len": 1025},
        passed={**native(), f"{SERVING}.max_model_len": 1025},
    ),
    "buckets-ascend": Example(
        path="serving.tuning.context_encoding_buckets",
        found={f"{TUNING}.context_encoding_buckets": [512, 256, 1024]},
        passed={f"{TUNING}.context_encoding_buckets": [256, 512, 1024]},
    ),
    "buckets-complete": Example(
        path="serving.tuning.num_seqs_buckets",
        found={**native(), f"{TUNING}.num_seqs_buckets": [1, 2]},
        passed={**native(), f"{TUNING}.num_seqs_buckets": [1, 2, 4]},
    ),
    "kernels-short": Example(
        path="serving.tuning.mlp_kernel_enabled",
        found={f"{TUNING}.mlp_kernel_enabled": True},
        passed={f"{TUNING}.mlp_kernel_enabled": True, f"{SERVING}.max_model_len": 2048},
    ),
    "tuning-read": Example(
        path="serving.tuning.optimization_level",
        found={f"{TUNING}.optimization_level": 2},
        passed={**native(), f"{TUNING}.optimization_level": 2},
    ),
    "async-alike": Example(
        path="serving.async_mode",
        found={**native(), f"{SERVING}.async_mode": True},
        passed={f"{SERVING}.async_mode": True},
    ),
    "cores-present": Example(
        path="serving.tensor_parallel_size",
        found={f"{SERVING}.tensor_parallel_size": 64},
        passed={f"{SERVING}.tensor_parallel_size": 64, f"{SERVING}.logical_neuron_core": 1},
    ),
    "cores-idle": Example(
        path="serving.tensor_parallel_size",
        found={f"{SERVING}.tensor_parallel_size": 16},
        passed={f"{SERVING}.tensor_parallel_size": 16, f"{SERVING}.devices": 4, f"{SERVING}.cpu": 45},
    ),
    "degree-divides": Example(
        path="serving.tensor_parallel_size", found={f"{VARIANT}.draft": "made-up/odd-width"}
    ),
    "degree-pads": Example(
        path="serving.tensor_parallel_size", vary=of_model("Qwen/Qwen3-32B", attention_heads=fig(40))
    ),
    "group-holds": Example(path="serving.device_group", found={f"{SERVING}.device_group": 4}),
    "device-count": Example(
        path="experiments[0]",
        found={
            f"{SERVING}.devices": 2, f"{SERVING}.tensor_parallel_size": 8, f"{SERVING}.cpu": 20,
            f"{SERVING}.memory_gib": 200,
        },
        passed={f"{SERVING}.devices": 4, f"{SERVING}.tensor_parallel_size": 16, f"{SERVING}.cpu": 45},
    ),
    "group-published": Example(path="experiments[0]", found=small(device_group=4), passed=small()),
    "group-named": Example(path="experiments[0]", found={f"{SERVING}.device_group": None}),
    "shm-in-memory": Example(
        path="serving.shm_gib", found={f"{SERVING}.shm_gib": 256}, passed={f"{SERVING}.shm_gib": 255}
    ),
    "cpu-fits": Example(path="experiments[0]", found={f"{SERVING}.cpu": 96}, passed={f"{SERVING}.cpu": 95}),
    "memory-fits": Example(
        path="experiments[0]", found={f"{SERVING}.memory_gib": 947}, passed={f"{SERVING}.memory_gib": 945}
    ),
    "device-memory": Example(
        path="experiments[0]",
        vary=of_model("Qwen/Qwen3-32B", bytes=fig(900_000_000_000)),
        vary_passed=of_model("Qwen/Qwen3-32B", bytes=fig(700_000_000_000)),
    ),
    "arms-at-once": Example(
        path="experiments[0]",
        found={"experiment.schedule": "simultaneous", "experiment.sweep": SWEEP},
        passed={"experiment.schedule": "simultaneous"},
    ),
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
        vary=offered("m7i.large", "use2-az4"),
        vary_passed=offered("m7i.large", "use2-az1"),
    ),
    "capacity-kind": Example(
        path="capacity.kind",
        found={**small(), f"{CAPACITY}.kind": "reservation", f"{CAPACITY}.reservation_id": "cr-0123456789abcdef0"},
        passed=small(),
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
    "account-real": Example(path="account", found={"environment.account": "111122223333"}),
    "budget-holds-run": Example(
        path="guard.budget_usd",
        found={"environment.guard.budget_usd": 286},
        passed={"environment.guard.budget_usd": 287},
    ),
    "idle-before-max": Example(
        path="guard.idle_minutes",
        found={"environment.guard.max_hours": 1, "environment.guard.idle_minutes": 60},
        passed={"environment.guard.max_hours": 1, "environment.guard.idle_minutes": 59},
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
    "images-pinned": Example(path="experiments", vary=_no_digests),
    "mirrors-complete": Example(
        path="registry_mirrors",
        found={"environment.registry_mirrors": {"public.ecr.aws": "mirror.acme.dev/public"}},
        passed={"environment.registry_mirrors": MIRRORS},
    ),
    "mirrors-closed": Example(
        path="registry_mirrors",
        found={"environment.network.nat": "none"},
        passed={"environment.network.nat": "none", "environment.registry_mirrors": MIRRORS},
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
    "closed-needs-endpoints": Example(
        path="network.interface_endpoints",
        found={
            "environment.network.nat": "none", "environment.network.interface_endpoints": False,
            "environment.registry_mirrors": MIRRORS,
        },
        passed={"environment.network.interface_endpoints": False},
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
    "hosted-once": Example(path="experiments[1]", found={"environment.experiments": ["pair", "pair"]}),
    "environment-name": Example(
        path="name", found={"environment.name": "e" * 46}, passed={"environment.name": "e" * 37}
    ),
    "experiment-name": Example(
        path="variants[1].name", found={f"{VARIANT}.name": "v" * 47}, passed={f"{VARIANT}.name": "v" * 46}
    ),
    "bucket-name": Example(
        path="artifacts.existing_bucket",
        found={"environment.artifacts.existing_bucket": "my..models"},
        passed={"environment.artifacts.existing_bucket": "my.models"},
    ),
    "tags-fit": Example(
        path="tags.aws:team",
        found={"environment.tags": {"aws:team": "x"}},
        passed={"environment.tags": {"team": "research + more"}},
    ),
}  # fmt: skip
