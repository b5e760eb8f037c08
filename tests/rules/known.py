"""A small made-up catalogue and two clean files, so that a rule's example can differ from them in
one thing.

Invariant: the rules find nothing in the clean pair, neither refusal nor warning; figures here prove
nothing.
"""

from __future__ import annotations

import copy
import re
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

from tandem.declarations import catalogue as real
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.document import YamlDocument
from tandem.declarations.environment import Environment
from tandem.declarations.experiment import Experiment
from tandem.declarations.faults import SpecFault
from tandem.declarations.figure import DataFigure, FigureSource
from tandem.declarations.model import ModelConfig
from tandem.declarations.platform import (
    ChartImage,
    DigestTable,
    DraChart,
    InstanceTable,
    InstanceType,
    KubernetesMinor,
    KubernetesTable,
    OfferingTable,
)
from tandem.declarations.record import parse_record
from tandem.declarations.workspace import SpecFile, Workspace
from tandem.rules import check_workspace

SOURCES = {"s": FigureSource(where="made up", date=date(2026, 11, 21))}
DELETE = object()
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)

ENVIRONMENT: dict[str, Any] = {
    "account": "210987654321",
    "region": "us-east-2",
    "network": {
        "kind": "new",
        "cidr": "10.42.0.0/16",
        "zones": ["use2-az1", "use2-az2", "use2-az3"],
    },
    "cluster": {
        "endpoint": {"access": "private"},
        "access": {"admin": ["arn:aws:iam::210987654321:role/Admin"]},
    },
    "capacity": {
        "instance_type": "trn2.48xlarge",
        "kind": "capacity-block",
        "reservation_id": "cr-0123456789abcdef0",
        "zone": "use2-az3",
        "nodes": 1,
        "usd_per_hour": 35.76,
        "usd_per_hour_date": "2026-05-31",
    },
    "delivery": {
        "kind": "gitops",
        "repo_url": "https://git.acme.dev/tandem.git",
        "revision": "main",
        "path": "manifests/environment",
        "tool": "argocd",
        "namespace": "argocd",
    },
    "guard": {"max_hours": 8, "idle_minutes": 30, "budget_usd": 2000},
    "observability": {
        "alarm_subscriptions": [{"protocol": "email", "endpoint": "oncall@acme.dev"}]
    },
    "experiments": ["pair"],
}

EXPERIMENT: dict[str, Any] = {
    "runtime": "nxdi-v0",
    "target": "Qwen/Qwen3-32B",
    "max_prompt_tokens": 384,
    "max_output_tokens": 600,
    "serving": {
        "tensor_parallel_size": 32,
        "logical_neuron_core": 2,
        "devices": 8,
        "device_group": 8,
        "max_num_seqs": 4,
        "max_model_len": 1024,
        "async_mode": False,
        "cpu": 90,
        "memory_gib": 256,
        "shm_gib": 16,
    },
    "compile": {"memory_gib": 700},
    "variants": [
        {"name": "plain", "mode": "none"},
        {"name": "fast", "mode": "fused", "draft": "Qwen/Qwen3-1.7B", "num_speculative_tokens": 7},
    ],
    "suites": ["post"],
    "concurrency": [1],
    "goodput": {"tpot_ms": 50.0},
}


def fig(value: Any) -> DataFigure[Any]:
    """Return a figure of the made-up source."""
    return DataFigure[Any](value=value, source=SOURCES["s"])


def model(id_: str, **figures: Any) -> ModelConfig:
    """Return a model like Qwen3-32B, except for `figures`."""
    values: dict[str, Any] = {
        "kind": "causal-lm",
        "revision": "0" * 40,
        "family": "qwen3",
        "layers": 64,
        "attention_heads": 64,
        "kv_heads": 8,
        "head_dim": 128,
        "hidden_size": 5120,
        "intermediate_size": 25600,
        "vocabulary": 151936,
        "max_position_embeddings": 40960,
        "tokenizer": "qwen3",
        "dtype": "bfloat16",
        "bytes": 65_500_000_000,
        "gated": False,
    }
    head_of = figures.pop("head_of", None)
    figures = {name: fig(value) for name, value in {**values, **figures}.items()}
    return ModelConfig(id=id_, head_of=head_of, sources=SOURCES, **figures)


def _models() -> dict[str, ModelConfig]:
    small = {
        "layers": 28,
        "attention_heads": 16,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "bytes": 3_440_000_000,
    }
    llama = {
        "family": "llama",
        "tokenizer": "llama3",
        "layers": 32,
        "attention_heads": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "vocabulary": 128256,
        "max_position_embeddings": 131072,
        "bytes": 16_000_000_000,
    }
    head = {"layers": 1, "bytes": 800_000_000, "draft_vocabulary": 32000}
    models = [
        model("Qwen/Qwen3-32B"),
        model("Qwen/Qwen3-1.7B", **small),
        model("Qwen/Qwen3-0.6B", **{**small, "bytes": 1_200_000_000}),
        model("made-up/other-family", **{**small, "family": "llama"}),
        model("made-up/other-rows", **{**small, "vocabulary": 151000}),
        model("made-up/short", **{**small, "max_position_embeddings": 512}),
        model("made-up/odd-width", **{**small, "intermediate_size": 6150}),
        model("made-up/moe", family="qwen3_moe"),
        model("meta-llama/Llama-3.1-8B-Instruct", **llama),
        model("meta-llama/Llama-3.2-1B", **{**llama, "layers": 16, "bytes": 2_500_000_000}),
        model("made-up/llama-9B", **llama),
        model(
            "made-up/eagle",
            kind="eagle-head",
            head_of="meta-llama/Llama-3.1-8B-Instruct",
            **{**llama, **head},
        ),
        model(
            "made-up/eagle3",
            kind="eagle3-head",
            head_of="meta-llama/Llama-3.1-8B-Instruct",
            **{**llama, **head},
        ),
        model(
            "made-up/eagle3-narrow",
            kind="eagle3-head",
            head_of="meta-llama/Llama-3.1-8B-Instruct",
            **{**llama, **head, "hidden_size": 2048},
        ),
        model(
            "made-up/eagle-whole",
            kind="eagle-head",
            head_of="meta-llama/Llama-3.1-8B-Instruct",
            **{**llama, **head, "draft_vocabulary": 128256},
        ),
        model(
            "made-up/eagle3-qwen",
            kind="eagle3-head",
            head_of="Qwen/Qwen3-32B",
            **{**head, "family": "llama"},
        ),
        model("made-up/medusa", kind="medusa-heads", head_of="Qwen/Qwen3-32B", layers=1),
    ]
    return {entry.id: entry for entry in models}


def _instances() -> InstanceTable:
    large = InstanceType(
        vcpu=fig(192),
        memory_gib=fig(2048),
        devices=fig(16),
        physical_cores_per_device=fig(8),
        hbm_gib_per_device=fig(96),
        allocatable_cpu_m=fig(191450),
        allocatable_memory_mib=fig(1938410),
        pods=fig(100),
        efa_cards=fig(16),
        network_card_gbps=fig(200),
        nvme_gb=fig(7600),
        device_groups=fig((4, 8, 16)),
        device_counts=fig((1, 4, 8, 16)),
        capacity_kinds=fig(("capacity-block", "reservation", "spot", "on-demand")),
    )
    small = large.model_copy(
        update={
            "vcpu": fig(12),
            "memory_gib": fig(128),
            "devices": fig(1),
            "allocatable_cpu_m": fig(11900),
            "allocatable_memory_mib": fig(120000),
            "device_groups": fig(()),
            "device_counts": fig((1,)),
            "capacity_kinds": fig(("capacity-block", "spot", "on-demand")),
        }
    )
    types = {"trn2.48xlarge": large, "trn2u.48xlarge": large, "trn2.3xlarge": small}
    return InstanceTable(instances=types, sources=SOURCES)


def _minor(**figures: Any) -> KubernetesMinor:
    releases = figures.get(
        "releases", {"1.36.4-20261003": "2.31.7.0", "1.36.2-20260714": "2.29.0.0"}
    )
    return KubernetesMinor(
        standard_support_ends=fig(figures.get("ends")),
        ami_releases={release: fig(driver) for release, driver in releases.items()},
        addons={"vpc-cni": fig(figures.get("cni", "v1.22.0-eksbuild.1"))},
    )


@cache
def known() -> Catalogue:
    """Return the made-up catalogue around the real runtimes, freed of what they warn of."""
    runtimes = dict(real.load_catalogue().runtimes)
    for name, runtime in runtimes.items():
        safe = runtime.image.vulnerabilities.model_copy(update={"value": None})
        image = runtime.image.model_copy(update={"vulnerabilities": safe})
        ends = runtime.support_ends.model_copy(update={"value": None})
        runtimes[name] = runtime.model_copy(update={"image": image, "support_ends": ends})
    chart = DraChart(
        repository="oci://public.ecr.aws/neuron/neuron-helm-chart",
        version=fig("1.10.0"),
        digest=fig(None),
        namespace=fig("neuron-dra-driver"),
        device_class=fig("neuron.aws.com"),
        driver=fig("neuron.aws.com"),
        values=fig({}),
        images=fig(
            (ChartImage(repository="registry.k8s.io/npd", tag="v1", repository_value="npd.image"),)
        ),
        sources=SOURCES,
    )
    references = [runtime.image.reference for runtime in runtimes.values()] + [
        "registry.k8s.io/npd:v1"
    ]
    zones = ("use2-az1", "use2-az2", "use2-az3")
    return Catalogue(
        models=_models(),
        runtimes=runtimes,
        instances=_instances(),
        dra_chart=chart,
        offerings=OfferingTable(
            offerings={
                "trn2.48xlarge": {"us-east-2": fig(("use2-az1", "use2-az3"))},
                "trn2.3xlarge": {"us-east-2": fig(zones), "ap-southeast-4": fig(("apse4-az3",))},
            },
            zones={"us-east-2": fig(zones), "us-west-2": fig(("usw2-az1", "usw2-az2"))},
            billing_codes={
                "us-east-1": fig("made-up"),
                "us-east-2": fig("USE2"),
                "us-west-2": fig("USW2"),
                "ap-southeast-4": fig("APS6"),
            },
            sources=SOURCES,
        ),
        kubernetes=KubernetesTable(
            floor=fig("1.35"),
            default=fig("1.36"),
            kubectl=fig("1.36"),
            sources=SOURCES,
            minors={
                "1.34": _minor(),
                "1.35": _minor(ends=date(2027, 3, 27)),
                "1.36": _minor(),
                "1.37": _minor(releases={}, cni=None),
            },
        ),
        digests=DigestTable(
            digests={reference: fig(f"sha256:{'0' * 64}") for reference in references},
            sources=SOURCES,
        ),
        watch_prices=real.load_catalogue().watch_prices,  # no rule reads them
        standing_prices=real.load_catalogue().standing_prices,
    )


def judged(
    changes: dict[str, Any], catalogue: Catalogue | None = None, now: datetime | None = NOW
) -> tuple[SpecFault, ...]:
    """Judge the clean pair after `changes`: dotted path of the file that has it to a value or
    DELETE.

    `environment.` and `experiment.` before a path say which file is meant where both have the key
    (`serving` is the experiment's); `twin.` is a second environment, whose own faults are left out.
    """
    files = {"environment": copy.deepcopy(ENVIRONMENT), "experiment": copy.deepcopy(EXPERIMENT)}
    if any(path.startswith("twin.") for path in changes):
        files["twin"] = copy.deepcopy({**ENVIRONMENT, "delivery": {"kind": "cdk"}})
        files["twin"]["capacity"]["reservation_id"] = None
    for path, value in changes.items():
        first = re.split(r"[.\[]", path)[0]
        kind = "experiment" if first in Experiment.model_fields else "environment"
        _set(files, path if first in files else f"{kind}.{path}", value)
    names = {
        kind: data.pop("name", "pair" if kind == "experiment" else kind)
        for kind, data in files.items()
    }
    documents = {
        kind: YamlDocument(file=f"{kind}.yaml", data=data, lines=_lines(data))
        for kind, data in files.items()
    }
    experiment = documents.pop("experiment")
    records = {
        kind: SpecFile(
            document=document, record=parse_record(Environment, document, name=names[kind])
        )
        for kind, document in documents.items()
    }
    pair = SpecFile(
        document=experiment, record=parse_record(Experiment, experiment, name=names["experiment"])
    )
    faults = check_workspace(
        Workspace(environments=records, experiments={"pair": pair}), catalogue or known(), now
    )
    return tuple(fault for fault in faults if fault.file != "twin.yaml")


def _set(files: dict[str, Any], path: str, value: Any) -> None:
    steps = [
        int(step) if step.isdigit() else step for step in re.split(r"\.|\[|\]\.?", path) if step
    ]
    place: Any = files
    for step in steps[:-1]:
        place = place.setdefault(step, {}) if isinstance(place, dict) else place[step]
    if value is DELETE:
        del place[steps[-1]]
    else:
        place[steps[-1]] = copy.deepcopy(value)  # a later change may be below it


def _lines(data: Any, path: str = "") -> dict[str, int]:
    """Give every key path a line of its own; which one does not matter."""
    lines = {path: len(path) + 1}
    children = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in children:
        child = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else key
        lines |= _lines(value, child)
    return lines
