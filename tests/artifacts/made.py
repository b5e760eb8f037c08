"""Artifacts and models as the chain leaves them, made in a moment by the stand-ins' own writers."""

from __future__ import annotations

import json

from committed import experiment
from stored_sets import list_files

from rehearsal.checkpoint import RandomCheckpoint
from rehearsal.runtime.model_folder import ModelFolder, read_model
from rehearsal.runtime.nxdi import build_application, compile_application
from rehearsal.runtime.settings import StandInSettings
from tandem.artifacts.manifest import MANIFEST_NAME, Manifest
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.compile_command import loader_settings
from tandem.declarations.experiment import TuningSettings
from tandem.declarations.runtime import ProgramCompile
from tandem.declarations.variant_key import compute_artifact_key

QUIET = StandInSettings(
    crash_kind="",
    crash_attempts=(),
    has_truncated_shard=False,
    marks_graph_failure=False,
    state_folder="",
)


def small(tuning=None):
    """The post's experiment on two cores, so that an artifact has two weight files."""
    post = experiment("post")
    serving = post.serving.model_copy(
        update={"tensor_parallel_size": 2, "tuning": TuningSettings(**(tuning or {}))}
    )
    return post.model_copy(update={"serving": serving})


def variant(declaration, mode):
    return next(entry for entry in declaration.all_variants() if entry.mode == mode)


def key_of(mode="fused", tuning=None):
    return compute_artifact_key(small(tuning), variant(small(), mode), load_catalogue())


def native_key():
    declaration = experiment("qwen3-native")
    return compute_artifact_key(declaration, variant(declaration, "none"), load_catalogue())


def nxdi_artifact(folder, mode="fused", tuning=None, **more):
    """What a compile of `key_of(mode, tuning)` leaves; `more` are other settings."""
    post = small(tuning)
    spelling = load_catalogue().runtimes["nxdi-v0"].spelling
    assert spelling is not None
    assert isinstance(spelling.compile, ProgramCompile)
    settings = loader_settings(post, variant(post, mode), spelling, spelling.compile)
    models = load_catalogue().models
    target = _model(folder.parent / "target", models[post.target].full_id(), 0)
    draft = _model(
        folder.parent / "draft",
        models[variant(post, mode).draft or post.target].full_id(),
        1,
    )
    app = build_application(
        {**settings, **more}, target, draft if mode == "fused" else None, "qwen3"
    )
    compile_application(app, folder, QUIET, 1)
    return folder


def _model(folder, name, seed):
    RandomCheckpoint(layers=1, seed=seed).write(folder)
    declaration = read_model(str(folder))
    return ModelFolder(
        path=f"/models/{name.replace('@', '/')}",
        config=declaration.config,
        identity=declaration.identity,
    )


def native_artifact(folder):
    for number in range(2):
        key = f"{number:032x}"
        entry = folder / "neuron/compile_cache" / key
        entry.mkdir(parents=True)
        (entry / f"graph_{key}.neff").write_bytes(b"NEFF" + key.encode())
        (entry / ".compilation_complete").write_text("completed:0\nneff_size:36\n")
    return folder


def stored(mount, key, source, run="run-1", **made):
    """Lay an artifact as the mount of its prefix shows it."""
    manifest = Manifest(
        schema_version=1,
        kind="artifact",
        name=key.name,
        folder=run,
        fields=key.as_fields(),
        files=list_files(source),
        made={"run": run, "unproven": [], **made},
    )
    for file in manifest.files:
        target = mount / run / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((source / file.path).read_bytes())
    (mount / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest


def staged(mount, name):
    """Lay a small model's snapshot as the mount of the models shows it."""
    identity, _, revision = name.partition("@")
    folder = mount / identity / revision
    RandomCheckpoint(layers=1).write(folder)
    manifest = Manifest(
        schema_version=1,
        kind="model",
        name=name,
        folder="",
        fields={"id": identity, "revision": revision},
        files=list_files(folder),
        made={},
    )
    (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest


def edit_manifest(mount, **changes):
    plain = json.loads((mount / MANIFEST_NAME).read_text())
    (mount / MANIFEST_NAME).write_text(json.dumps({**plain, **changes}))
