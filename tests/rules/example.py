"""What an example of a rule is, and the pieces that examples are made of.

An example changes the clean pair of known.py, by dotted path to a value or DELETE, and the catalogue, by a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Any

from known import DELETE, fig

from tandem.spec.catalogue import Catalogue
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


def system_node(*, cpu_m: int, memory_mib: int) -> Vary:
    """Return a type of system nodes with so much to hand out."""

    def vary(catalogue: Catalogue) -> Catalogue:
        table = catalogue.instances.instances
        figures = {"allocatable_cpu_m": fig(cpu_m), "allocatable_memory_mib": fig(memory_mib)}
        node = table["trn2.3xlarge"].model_copy(update=figures)
        instances = catalogue.instances.model_copy(update={"instances": {**table, "m7i.xlarge": node}})
        return with_fields(catalogue, instances=instances)

    return vary


def kubectl(minor: str) -> Vary:
    """Return another kubectl for the CDK to deliver with."""
    return lambda catalogue: with_fields(
        catalogue, kubernetes=catalogue.kubernetes.model_copy(update={"kubectl": fig(minor)})
    )


def disk(gigabytes: int) -> Vary:
    """Return a small instance with so much local disk."""

    def vary(catalogue: Catalogue) -> Catalogue:
        table = catalogue.instances.instances
        small = table["trn2.3xlarge"].model_copy(update={"nvme_gb": fig(gigabytes)})
        instances = catalogue.instances.model_copy(update={"instances": {**table, "trn2.3xlarge": small}})
        return with_fields(catalogue, instances=instances)

    return vary


def cited(value: Any, source: str) -> Any:
    """Return a figure of a real runtime file's source."""
    return fig(value).model_copy(update={"source": source})


def no_digests(catalogue: Catalogue) -> Catalogue:
    """Forget every digest."""
    return with_fields(catalogue, digests=catalogue.digests.model_copy(update={"digests": {}}))


def no_billing_codes(catalogue: Catalogue) -> Catalogue:
    """Forget every region's billing code."""
    return with_fields(catalogue, offerings=catalogue.offerings.model_copy(update={"billing_codes": {}}))


def vulnerable(old: Runtime) -> dict[str, Any]:
    """Let an image have a known vulnerability."""
    vulnerabilities = old.image.vulnerabilities.model_copy(update={"value": "one HIGH"})
    return {"image": old.image.model_copy(update={"vulnerabilities": vulnerabilities})}


def native(**changes: Any) -> Changes:
    """Return Llama with an EAGLE3 head on the native runtime, after `changes` of the second variant."""
    variant = {"name": "fast", "mode": "eagle3", "draft": "made-up/eagle3", "num_speculative_tokens": 3, **changes}
    return {
        "experiment.runtime": "native", "experiment.target": LLAMA, f"{SERVING}.tensor_parallel_size": 32,
        f"{SERVING}.max_num_seqs": 2,
        VARIANT: {key: value for key, value in variant.items() if value is not DELETE},
    }  # fmt: skip


def small(**changes: Any) -> Changes:
    """Return a clean pair on one chip of a trn2.3xlarge, after `changes` of the serving settings."""
    serving = {"tensor_parallel_size": 4, "devices": 1, "device_group": None, "cpu": 10, "memory_gib": 96, **changes}
    return {
        f"{CAPACITY}.instance_type": "trn2.3xlarge", f"{CAPACITY}.kind": "spot", f"{CAPACITY}.reservation_id": None,
        **{f"{SERVING}.{key}": value for key, value in serving.items()}, "experiment.compile": DELETE,
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
