"""The files that NxD Inference leaves when it compiles, and those that it needs when it loads.

Source: aws-neuron/neuronx-distributed-inference tag v0.6.10598 models/application_base.py (compile,
shard_weights, load, load_weights) and inference_demo.py (run_inference); the compiler's cache as
tandem/artifacts/driver/folders.py cites it.

For the model's own configuration the real file has further defaults of transformers; here it has
only those of config.json.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import json
import os
import stat
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors

from rehearsal.runtime.model_folder import ModelFolder
from rehearsal.runtime.neuron_config import NeuronSettingsError, build_neuron_config
from rehearsal.runtime.settings import StandInSettings
from tandem.artifacts.tensor_file import read_tensor_file
from tandem.errors import TandemError

# aws-neuron-sdk 2.26.1, as compile logs of it name the folder
COMPILER_FOLDER = "neuronxcc-2.21.33363.0+82129205"
DEFAULT_CACHE = "/var/tmp/neuron-compile-cache"  # noqa: S108 - the real program's own default
WORKER_CLASSES = {"qwen3": "NeuronQwen3Model", "llama": "NeuronLlamaModel"}
TENSOR_BYTES = 64
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


class NeuronCompileError(Exception):
    """The compiler failed, in its wrapper's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NxdiApplication:
    """A model with its settings, as NeuronApplicationBase has them."""

    target: ModelFolder
    draft: ModelFolder | None
    config: dict[str, Any]

    @property
    def graphs(self) -> tuple[str, ...]:
        """Return the traced graphs (models/model_base.py NeuronBaseForCausalLM.__init__)."""
        is_fusion = self.config["neuron_config"]["enable_fused_speculation"]
        return (
            "context_encoding_model",
            "fused_speculation_model" if is_fusion else "token_generation_model",
        )

    @property
    def identity(self) -> str:
        """Return a digest of all inputs of the compilation."""
        models = [self.target.identity, self.draft.identity if self.draft else ""]
        return hashlib.sha256(
            json.dumps([self.config, models], sort_keys=True).encode()
        ).hexdigest()


def build_application(
    settings: Mapping[str, Any], target: ModelFolder, draft: ModelFolder | None, family: str
) -> NxdiApplication:
    """Build the configuration from keyword arguments, the draft's as a copy of the target's.

    Raises:
        NeuronSettingsError: the real classes refuse the settings.
    """
    neuron_settings = build_neuron_config(settings, family)
    config = {**_model_config(target), "neuron_config": neuron_settings, "fused_spec_config": None}
    if (
        draft
        and neuron_settings["speculation_length"] > 0
        and neuron_settings["enable_fused_speculation"]
    ):
        if neuron_settings["on_device_sampling_config"] is None:
            raise NeuronSettingsError(
                "AttributeError: 'NoneType' object has no attribute 'do_sample'"
            )
        config["fused_spec_config"] = {
            "worker_cls": {
                "__module__": f"neuronx_distributed_inference.models.{family}.modeling_{family}",
                "__name__": WORKER_CLASSES[family],
            },
            "draft_config": {
                **_model_config(draft),
                "neuron_config": _build_draft_settings(neuron_settings, settings),
                "fused_spec_config": None,
            },
            "draft_model_path": draft.path,
        }
    return NxdiApplication(target=target, draft=draft, config=config)


def _build_draft_settings(
    neuron_settings: dict[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    eagle = neuron_settings["enable_eagle_speculation"]
    overrides = {
        "speculation_length": neuron_settings["speculation_length"] if eagle else 0,
        "enable_fused_speculation": False,
        "is_eagle_draft": eagle,
        "tp_degree": settings.get("draft_model_tp_degree") or neuron_settings["tp_degree"],
    }
    return {**copy.deepcopy(neuron_settings), **overrides}


def _model_config(model: ModelFolder) -> dict[str, Any]:
    fields = {name: value for name, value in model.config.items() if name != "torch_dtype"}
    return {**fields, "_name_or_path": model.path, "metadata": None, "num_cores_per_group": 1}


def compile_application(
    app: NxdiApplication, folder: Path, stand_in_settings: StandInSettings, attempt: int
) -> None:
    """Write the files of the real `compile`: configuration first, then graphs, then weights.

    Raises:
        NeuronCompileError: a graph of the compiler's cache is marked as failed.
        OSError: the folder cannot be written.
    """
    _create_writable_folder(folder)
    config = json.dumps(app.config, indent=2, sort_keys=True) + "\n"
    (folder / "neuron_config.json").write_text(config)
    _print_line(f"Saving the neuron_config to {folder}/")
    for tag in app.graphs:
        _compile_graph(tag, app, stand_in_settings, attempt)
    stand_in_settings.crash_if_due(attempt)
    _write_graph(folder / "model.pt", app)
    settings = app.config["neuron_config"]
    if not settings["save_sharded_checkpoint"] or settings["skip_sharding"]:
        _print_line(
            "SKIPPING pre-sharding the checkpoints. The checkpoints will be sharded during load"
            " time."
        )
        return
    (folder / "weights").mkdir(exist_ok=True)
    for rank in range(settings["tp_degree"]):
        is_last = rank == settings["tp_degree"] - 1
        path = folder / f"weights/tp{rank}_sharded_checkpoint.safetensors"
        _write_tensors(path, rank, app.identity)
        if is_last and stand_in_settings.has_truncated_shard:
            path.write_bytes(path.read_bytes()[:-1])


def find_load_problem(folder: Path) -> str:
    """Return why the server's loader could not load this, else empty; it compares no flags."""
    try:
        settings = json.loads((folder / "neuron_config.json").read_text())["neuron_config"]
        with zipfile.ZipFile(folder / "model.pt") as graph:
            graph.getinfo("model/data.pkl")
        if settings["save_sharded_checkpoint"]:
            for rank in range(settings["start_rank_id"], settings["local_ranks_size"]):
                read_tensor_file(folder / f"weights/tp{rank}_sharded_checkpoint.safetensors")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, TandemError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _create_writable_folder(folder: Path) -> None:
    """Make the folder; refuse one with no write bit, which means read-only, also for root."""
    nearest = folder
    while not nearest.exists():
        nearest = nearest.parent
    if not stat.S_IMODE(nearest.stat().st_mode) & 0o222:
        raise OSError(30, "Read-only file system", str(folder))
    folder.mkdir(parents=True, exist_ok=True)


def _compile_graph(
    tag: str, app: NxdiApplication, stand_in_settings: StandInSettings, attempt: int
) -> None:
    """Compile one graph through the compiler's cache, with its verdicts and locks."""
    work_folder = (
        Path(os.environ.get("BASE_COMPILE_WORK_DIR", "/tmp/nxd_model/")) / tag / "_tp0_bk0"  # noqa: S108
    )
    work_folder.mkdir(parents=True, exist_ok=True)
    (work_folder / "log-neuron-cc.txt").write_text("Compiler status PASS\n")
    cache_folder = Path(os.environ.get("NEURON_COMPILE_CACHE_URL", DEFAULT_CACHE)) / COMPILER_FOLDER
    digest = hashlib.sha256(f"{app.identity}/{tag}".encode()).hexdigest()
    entry = cache_folder / f"MODULE_{int(digest[:16], 16)}+{digest[16:24]}"
    if (entry / "model.done").exists():
        _print_line(f"INFO ||NEURON_CC_WRAPPER||: Using a cached neff at {entry}/model.neff")
        return
    while (entry / "model.hlo_module.pb.lock").exists():
        _print_line(
            "INFO ||NEURON_CACHE||: Another process must be compiling the same graph, waiting"
        )
        time.sleep(1)
    if (entry / "model.log").exists() and "--retry_failed_compilation" not in os.environ.get(
        "NEURON_CC_FLAGS", ""
    ):
        raise NeuronCompileError(
            f"ERROR ||NEURON_CC_WRAPPER||: Got a cached failed neff at {entry}/model.neff. Will"
            " skip compilation, please set --retry_failed_compilation for recompilation"
        )
    entry.mkdir(parents=True, exist_ok=True)
    lock = entry / "model.hlo_module.pb.lock"
    lock.touch()
    (entry / "compile_flags.json").write_text("[]")
    (entry / "model.hlo_module.pb").write_bytes(digest.encode())
    if stand_in_settings.is_crash(attempt) and tag != app.graphs[0]:
        return  # the compilation ends in this graph: its lock stays
    if stand_in_settings.marks_graph_failure and tag == app.graphs[0]:
        (entry / "model.log").write_text(
            "Failed compilation with ['neuronx-cc', 'compile']: not written by a compiler"
        )
    else:
        (entry / "model.neff").write_bytes(b"NEFF" + digest.encode())
        (entry / "model.done").touch()
    lock.unlink()
    _print_line(f"Compiled {tag}. Compiler status PASS")


def _write_graph(path: Path, app: NxdiApplication) -> None:
    """Write a zip as torch.jit does: stored, the directory at its end."""
    members = {
        "data.pkl": app.identity,
        "code/__torch__.py": "",
        "constants.pkl": "",
        "version": "3\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(f"model/{name}", _ZIP_DATE), content)


def _write_tensors(path: Path, rank: int, identity: str) -> None:
    """Write one rank's weights with safetensors, which makes them readable only for their owner."""
    weight = hashlib.sha512(f"{identity}/{rank}".encode()).digest()[:TENSOR_BYTES]
    buffers = {
        "layers.0.self_attn.qkv_proj.q_proj.weight": ("bfloat16", [TENSOR_BYTES // 2], weight),
        "rank_util.rank": ("int32", [1], rank.to_bytes(4, "little")),
    }
    tensor_buffers = {
        name: ctypes.create_string_buffer(content, len(content))
        for name, (_, _, content) in buffers.items()
    }
    tensors = {
        name: safetensors.TensorSpec(
            dtype=dtype,
            shape=shape,
            data_ptr=ctypes.addressof(tensor_buffers[name]),
            data_len=len(content),
        )
        for name, (dtype, shape, content) in buffers.items()
    }
    safetensors.serialize_file(tensors, path, {"format": "pt"})


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
