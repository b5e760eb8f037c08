"""Artifacts and models as the chain leaves them, made in a moment by the stand-ins' own writers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tandem.artifacts.files import files_below
from tandem.artifacts.manifest import NAME, Manifest
from tandem.spec.artifact_key import ArtifactKey
from tandem.spec.catalogue import catalogue
from tandem.spec.compiler import loader_settings
from tandem.spec.experiment import Experiment, Tuning, Variant
from tandem.spec.load import load
from tandem.spec.runtime import ProgramCompile
from tandem.spec.variant_key import artifact_key
from tandem.twin.checkpoint import Checkpoint
from tandem.twin.runtime.checkpoint import Model, read_model
from tandem.twin.runtime.knobs import Knobs
from tandem.twin.runtime.nxdi import application, compile_to

ROOT = Path(__file__).resolve().parents[2]
QUIET = Knobs(crash="", crash_at=(), half="", failed_graph=False, hang=False, slow_s=0, ignore_sigterm=False, state="")


@cache
def experiment(name: str) -> Experiment:
    return load(ROOT / "environments", ROOT / "experiments").experiments[name].experiment


def small(tuning: Mapping[str, Any] | None = None) -> Experiment:
    """The post's experiment on two cores, so that an artifact has two weight files."""
    post = experiment("post")
    serving = post.serving.model_copy(update={"tensor_parallel_size": 2, "tuning": Tuning(**(tuning or {}))})
    return post.model_copy(update={"serving": serving})


def variant(found: Experiment, mode: str) -> Variant:
    return next(each for each in found.all_variants() if each.mode == mode)


def key_of(mode: str = "fused", tuning: Mapping[str, Any] | None = None) -> ArtifactKey:
    return artifact_key(small(tuning), variant(small(), mode), catalogue())


def native_key() -> ArtifactKey:
    found = experiment("qwen3-native")
    return artifact_key(found, variant(found, "none"), catalogue())


def nxdi_artifact(folder: Path, mode: str = "fused", tuning: Mapping[str, Any] | None = None, **more: Any) -> Path:
    """What a compile of `key_of(mode, tuning)` leaves; `more` are other settings."""
    declared = small(tuning)
    spelling = catalogue().runtimes["nxdi-v0"].spelling
    assert spelling is not None
    assert isinstance(spelling.compile, ProgramCompile)
    settings = loader_settings(declared, variant(declared, mode), spelling, spelling.compile)
    known = catalogue().models
    target = _model(folder.parent / "target", known[declared.target].pinned(), 0)
    draft = _model(folder.parent / "draft", known[variant(declared, mode).draft or declared.target].pinned(), 1)
    app = application({**settings, **more}, target, draft if mode == "fused" else None, "qwen3")
    compile_to(app, folder, QUIET, 1)
    return folder


def _model(folder: Path, name: str, seed: int) -> Model:
    Checkpoint(layers=1, seed=seed).write(folder)
    found = read_model(str(folder))
    return Model(path=f"/models/{name.replace('@', '/')}", config=found.config, identity=found.identity)


def native_artifact(folder: Path, graphs: int = 2) -> Path:
    for number in range(graphs):
        key = f"{number:032x}"
        entry = folder / "neuron/compile_cache" / key
        entry.mkdir(parents=True)
        (entry / f"graph_{key}.neff").write_bytes(b"NEFF" + key.encode())
        (entry / ".compilation_complete").write_text("completed:0\nneff_size:36\n")
    return folder


def stored(mount: Path, key: ArtifactKey, source: Path, run: str = "run-1", **made: Any) -> Manifest:
    """Lay an artifact as the mount of its prefix shows it."""
    manifest = Manifest(
        schema_version=1, kind="artifact", name=key.name, folder=run, fields=key.as_fields(),
        files=files_below(source), made={"run": run, "unproven": [], **made},
    )  # fmt: skip
    for file in manifest.files:
        target = mount / run / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((source / file.path).read_bytes())
    (mount / NAME).write_bytes(manifest.to_bytes())
    return manifest


def staged(mount: Path, name: str) -> Manifest:
    """Lay a small model's snapshot as the mount of the models shows it."""
    identity, _, revision = name.partition("@")
    folder = mount / identity / revision
    Checkpoint(layers=1).write(folder)
    manifest = Manifest(
        schema_version=1, kind="model", name=name, folder="", fields={"id": identity, "revision": revision},
        files=files_below(folder), made={},
    )  # fmt: skip
    (folder / NAME).write_bytes(manifest.to_bytes())
    return manifest


def edit_manifest(mount: Path, **changes: Any) -> None:
    plain = json.loads((mount / NAME).read_text())
    (mount / NAME).write_text(json.dumps({**plain, **changes}))
