"""Environments whose bucket is a test's own, and what their experiments need of it, stored for
real."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stored_sets import put_set

from tandem.artifacts.needs import BucketNeed
from tandem.artifacts.store import ObjectStore
from tandem.cli.bucket_context import load_bucket_context
from tandem.cli.selection import Selection

ENV = "post-us-east-2"
PRICE = ", usd_per_gb_month: 0.025, usd_per_gb_month_date: 2026-11-20"


def write_environment(specs: Path, bucket: str) -> None:
    """Leave the environment of the post alone, with this bucket and its first experiment."""
    for foreign_path in set((specs / "environments").iterdir()) - {
        specs / "environments" / f"{ENV}.yaml"
    }:
        foreign_path.unlink()
    path = specs / "environments" / f"{ENV}.yaml"
    text = path.read_text().replace(
        "experiments: [post, post-drafts-windows]", "experiments: [post]"
    )
    path.write_text(f"{text}artifacts: {{existing_bucket: {bucket}{PRICE}}}\n")


def copy_environment(specs: Path, name: str, experiments: str) -> Path:
    """Write another environment with the same bucket."""
    text = (
        (specs / "environments" / f"{ENV}.yaml")
        .read_text()
        .replace("experiments: [post]", f"experiments: [{experiments}]")
    )
    path = specs / "environments" / f"{name}.yaml"
    path.write_text(text)
    return path


def folders(specs: Path) -> list[str]:
    return [
        "--environments",
        str(specs / "environments"),
        "--experiments",
        str(specs / "experiments"),
    ]


def edit_file(specs: Path, old: str, new: str, file: str) -> None:
    """Replace a text that a declared file has."""
    path = specs / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def referring(name: str, map_name: str) -> dict[str, Any]:
    """A rendered server whose key stands in a ConfigMap."""
    reference = {"configMapKeyRef": {"key": "fields.json", "name": map_name}}
    container = {"name": "admit", "env": [{"name": "TANDEM_ARTIFACT_KEY", "valueFrom": reference}]}
    pod = {"initContainers": [container], "containers": [{"name": "vllm", "env": []}]}
    return {"kind": "Deployment", "metadata": {"name": name}, "spec": {"template": {"spec": pod}}}


def config_map(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The ConfigMap of a key."""
    data = {"fields.json": json.dumps(fields)}
    return {"kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def needed(specs: Path) -> tuple[BucketNeed, ...]:
    selection = Selection(environments=specs / "environments", experiments=specs / "experiments")
    return load_bucket_context(selection, ENV).needs


def store_needs(store: ObjectStore, needs: Iterable[BucketNeed]) -> None:
    """Store each as a small whole set."""
    for need in needs:
        fields: dict[str, Any] = (
            need.fields if need.kind == "artifact" else {**need.fields, "commit": "abc"}
        )
        put_set(store, need.prefix, "run" if need.kind == "artifact" else "", fields)
