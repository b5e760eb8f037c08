"""Files in which every leaf of a schema is written, in each of its kinds."""

from __future__ import annotations

import copy
import re
from typing import Any

ENVIRONMENT: dict[str, Any] = {
    "account": "210987654321",
    "region": "us-east-2",
    "termination_protection": True,
    "network": {
        "kind": "new",
        "cidr": "10.42.0.0/16",
        "zones": ["use2-az1", "use2-az3"],
        "nat": "single",
        "nat_zone": "use2-az1",
        "interface_endpoints": True,
    },
    "bootstrap": {"qualifier": "tandem", "permissions_boundary": "Boundary"},
    "cluster": {
        "kubernetes": "1.36",
        "ami_release": "1.36.2-20260625",
        "endpoint": {"access": "public", "cidrs": ["203.0.113.0/24"], "clients": ["10.8.0.0/16"]},
        "access": {
            kind: [f"arn:aws:iam::210987654321:role/{kind}"]
            for kind in ("admin", "operator", "engineer", "viewer")
        },
        "system_nodes": {"instance_type": "m7i.large", "count": 2},
        "deletion_protection": True,
    },
    "artifacts": {
        "existing_bucket": "models",
        "kms_key_arn": (
            "arn:aws:kms:us-east-2:210987654321:key/01234567-89ab-cdef-0123-456789abcdef"
        ),
        "noncurrent_days": 30,
        "usd_per_gb_month": 0.02,
        "usd_per_gb_month_date": "2026-11-21",
    },
    "hub": {"endpoint": "https://hub.acme.dev", "token_secret": "tandem/hub"},
    "capacity": {
        "instance_type": "trn2.48xlarge",
        "kind": "capacity-block",
        "reservation_id": "cr-0123456789abcdef0",
        "zone": "use2-az3",
        "nodes": 1,
        "usd_per_hour": 35.76,
        "usd_per_hour_date": "2026-05-31",
        "usd_per_hour_of": "trn2.48xlarge capacity-block",
        "efa": False,
        "block": {"starts": "2026-12-01T11:30:00Z", "ends": "2026-12-08T11:30:00Z"},
    },
    "registry_mirrors": {"public.ecr.aws": "mirror.acme.dev/public"},
    "package_index": "https://index.acme.dev/simple",
    "builds_in_vpc": True,
    "tags": {"project": "tandem"},
    "log_retention_days": 90,
    "log_kms_key_arn": (
        "arn:aws:kms:us-east-2:210987654321:key/01234567-89ab-cdef-0123-456789abcdef"
    ),
    "delivery": {
        "kind": "gitops",
        "repo_url": "https://git.acme.dev/tandem.git",
        "revision": "main",
        "path": "manifests/x",
        "tool": "argocd",
        "namespace": "argocd",
    },
    "guard": {"max_hours": 8, "idle_minutes": 30, "budget_usd": 2000.0, "people_policies": True},
    "prices": {
        "date": "2026-11-21",
        "cluster_hour": 0.1,
        "system_node_hour": 0.2,
        "volume_gb_month": 0.08,
        "nat_gateway_hour": 0.05,
        "nat_gb": 0.05,
        "public_address_hour": 0.005,
        "endpoint_hour": 0.01,
        "image_gb_month": 0.1,
        "build_minute": 0.005,
        "metric_month": 0.3,
        "alarm_metric_month": 0.1,
        "composite_alarm_month": 0.5,
        "dashboard_month": 3.0,
        "log_gb_ingested": 0.5,
        "log_gb_month_stored": 0.03,
        "key_month": 1.0,
        "put_requests_thousand": 0.01,
    },
    "serving": {"allowed_namespaces": ["other"], "capabilities": "runtime-default"},
    "observability": {
        "container_insights": True,
        "alarm_subscriptions": [{"protocol": "email", "endpoint": "oncall@acme.dev"}],
        "reference": {
            "run": "20261121T101500Z-0123abcd",
            "values": [
                {
                    "experiment": "pair",
                    "variant": "fast",
                    "prompt_class": "json",
                    "concurrency": 4,
                    "ttft_ms": 180.0,
                    "tpot_ms": 15.0,
                    "acceptance_length": 4.5,
                },
            ],
        },
        "regression_percent": 20.0,
        "failed_percent": 5.0,
        "not_ready_minutes": 30,
        "monthly_limit_usd": 150.0,
    },
    "experiments": ["pair"],
}

OTHER_ENVIRONMENT: dict[str, Any] = {
    **ENVIRONMENT,
    "network": {
        "kind": "existing",
        "vpc_id": "vpc-0123456789abcdef0",
        "cidr": "10.42.0.0/16",
        "secondary_cidrs": ["100.64.0.0/16"],
        "subnets": [
            {"id": "subnet-01234567", "zone": "use2-az1"},
            {"id": "subnet-12345678", "zone": "use2-az3"},
        ],
        "control_plane_subnets": [
            {"id": "subnet-01234567", "zone": "use2-az1"},
            {"id": "subnet-12345678", "zone": "use2-az3"},
        ],
    },
    "delivery": {"kind": "cdk"},
}

EXPERIMENT: dict[str, Any] = {
    "runtime": "nxdi-v0",
    "target": "Qwen/Qwen3-32B",
    "accept_unproven": False,
    "max_prompt_tokens": 384,
    "max_output_tokens": 600,
    "serving": {
        "tensor_parallel_size": 32,
        "logical_neuron_core": 2,
        "devices": 8,
        "device_group": 8,
        "max_num_seqs": 4,
        "max_model_len": 1024,
        "dtype": "bfloat16",
        "async_mode": False,
        "cpu": 90,
        "memory_gib": 256,
        "shm_gib": 16,
        "copy_artifact": False,
        "tuning": {
            "fused_qkv": True,
            "sequence_parallel_enabled": True,
            "qkv_kernel_enabled": True,
            "attn_kernel_enabled": True,
            "mlp_kernel_enabled": True,
            "cc_pipeline_tiling_factor": 1,
            "context_encoding_buckets": [1024],
            "token_generation_buckets": [1024],
            "num_seqs_buckets": [4],
            "optimization_level": 2,
        },
    },
    "compile": {
        "where": "device",
        "cpu": 90,
        "memory_gib": 256,
        "deadline_hours": 4,
        "attempts": 3,
    },
    "variants": [
        {
            "name": "fast",
            "mode": "fused",
            "draft": "Qwen/Qwen3-1.7B",
            "num_speculative_tokens": 7,
            "method": "draft_model",
        },
    ],
    "sweep": {
        "prefix": "swept",
        "mode": "fused",
        "drafts": ["Qwen/Qwen3-1.7B"],
        "num_speculative_tokens": [5],
    },
    "concurrency": [4],
    "goodput": {"ttft_ms": 500.0, "tpot_ms": 30.0},
    "quality": [
        {"name": "letters", "sha256": "0" * 64, "items": 400, "chance": 0.25, "group": "letter"}
    ],
    "suites": [
        {
            "file": "prompts/support.jsonl",
            "sha256": "1" * 64,
            "prompt_column": "question",
            "class_field": "team",
            "turns": 2,
            "sample": 60,
            "seed": 7,
            "classes": {"billing": 40, "support": 20},
        },
        "post",
    ],
    "report": {"show_prompts": True},
    "schedule": "interleaved",
    "claims": "post",
}


def steps(path: str) -> list[str | int]:
    """Split a key path: `variants[0].name` into variants, 0 and name."""
    return [int(step) if step.isdigit() else step for step in re.split(r"\.|\[|\]", path) if step]


def holder(data: dict[str, Any], path: str) -> Any:
    """Return the mapping that the last key of a path stands in."""
    place: Any = data
    for step in steps(path)[:-1]:
        place = place[step]
    return place


def value(data: dict[str, Any], path: str) -> Any:
    """Return the value at a key path."""
    return holder(data, path)[steps(path)[-1]]


def replaced(data: dict[str, Any], path: str, new: Any) -> dict[str, Any]:
    """Return a copy with another value at a key path."""
    data_copy = copy.deepcopy(data)
    holder(data_copy, path)[steps(path)[-1]] = new
    return data_copy


def removed(data: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a copy without a key."""
    data_copy = copy.deepcopy(data)
    del holder(data_copy, path)[steps(path)[-1]]
    return data_copy
