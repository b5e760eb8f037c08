"""The stand-in for `vllm serve`: 0.9.1 with NxD Inference, 0.29.0 with the native plugin."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rehearsal.runtime.http_server import serve_requests
from rehearsal.runtime.model_folder import ModelFolder, ModelFolderError, read_model
from rehearsal.runtime.native_cache import CacheMissError, NativeCompileCache
from rehearsal.runtime.neuron_config import NeuronSettingsError
from rehearsal.runtime.nxdi import (
    NeuronCompileError,
    build_application,
    compile_application,
    find_load_problem,
)
from rehearsal.runtime.programs import (
    USAGE_ERROR,
    UnknownVariableError,
    add_flags,
    announce_stand_in,
    check_environment,
    read_programs,
)
from rehearsal.runtime.settings import StandInSettings

MODEL_FAMILIES = {"Qwen3ForCausalLM": "qwen3", "LlamaForCausalLM": "llama"}
# vllm 0.9.1 neuronx_distributed.py TORCH_DTYPE_TO_NEURON_AMP
NEURON_DTYPES = {"auto": "float32", "half": "float16", "float": "float32"}
SPECULATION_FIELDS = {
    "vllm-nxdi": {"model", "num_speculative_tokens", "max_model_len", "method"},
    "vllm-native": {"model", "num_speculative_tokens", "method"},
}
NATIVE_METHODS = {"eagle3"}
# where the EFA driver lists its devices, as every RDMA driver
EFA_DEVICES = Path("/sys/class/infiniband")


class VllmArgumentError(Exception):
    """A refusal of vLLM, in its own words."""


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; return the exit code.

    Args:
        program: vllm-nxdi or vllm-native.
        argv: arguments; the process's own by default.
    """
    announce_stand_in(program)
    try:
        check_environment(os.environ)
    except UnknownVariableError as error:
        sys.stdout.write(f"{error}\n")
        return USAGE_ERROR
    options = _parse_options(program, sys.argv[1:] if argv is None else argv)
    settings = StandInSettings.read()
    stop_event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_event.set())
    attempt = settings.start_attempt()
    try:
        speculation = _check_speculation(program, options)
        target = read_model(options.model)
        draft = read_model(speculation["model"]) if speculation.get("model") else None
        load_model = _load_nxdi if program == "vllm-nxdi" else _load_native
        fault = load_model(options, speculation, (target, draft), (settings, attempt))
    except (
        VllmArgumentError,
        ModelFolderError,
        NeuronSettingsError,
        NeuronCompileError,
        CacheMissError,
        OSError,
    ) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return serve_requests(options.host or "0.0.0.0", options.port, stop_event, fault)  # noqa: S104 - the real default


def _parse_options(program: str, argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    serve_parser = parser.add_subparsers(required=True, dest="command").add_parser(
        "serve", allow_abbrev=False
    )
    serve_parser.add_argument("model")
    add_flags(serve_parser, read_programs()[program]["flags"])
    return parser.parse_args(argv)


def _check_speculation(program: str, options: argparse.Namespace) -> dict[str, Any]:
    """Refuse the values that vLLM's SpeculativeConfig refuses (vllm 0.9.1 vllm/config.py)."""
    speculation: dict[str, Any] = options.speculative_config or {}
    unknown = sorted(set(speculation) - SPECULATION_FIELDS[program])
    if unknown:
        raise VllmArgumentError(
            f"TypeError: SpeculativeConfig got an unexpected keyword argument {unknown[0]!r}"
        )
    if not speculation:
        return speculation
    if (
        not isinstance(speculation.get("num_speculative_tokens"), int)
        or speculation["num_speculative_tokens"] < 1
    ):
        raise VllmArgumentError("ValueError: num_speculative_tokens must be greater than zero")
    draft_model_len = speculation.get("max_model_len")
    if draft_model_len is not None and draft_model_len > options.max_model_len:
        raise VllmArgumentError(
            f"ValueError: speculative_max_model_len={draft_model_len} cannot be larger than "
            f"target_max_model_len={options.max_model_len}"
        )
    if program == "vllm-native":
        if speculation.get("method") not in NATIVE_METHODS:
            raise VllmArgumentError(
                f"NotImplementedError: method {speculation.get('method')!r} is not supported on"
                " Neuron"
            )
        if os.environ.get("VLLM_NEURON_CPU_COMPILE") == "1":
            raise VllmArgumentError(
                "ValueError: Speculative decoding is not supported with VLLM_NEURON_CPU_COMPILE"
            )
    return speculation


def _load_nxdi(
    options: argparse.Namespace,
    speculation: dict[str, Any],
    models: tuple[ModelFolder, ModelFolder | None],
    settings_and_attempt: tuple[StandInSettings, int],
) -> str:
    """Load NEURON_COMPILED_ARTIFACTS or compile into it; return every later request's fault."""
    override = options.override_neuron_config or {}
    settings = {**_loader_defaults(options, speculation), **override}
    target, draft = models
    family = MODEL_FAMILIES.get((target.config.get("architectures") or [""])[0])
    if family is None:
        raise VllmArgumentError(
            f"ValueError: Model architectures {target.config.get('architectures')} are not"
            " supported"
        )
    folder = Path(
        os.environ.get("NEURON_COMPILED_ARTIFACTS", f"{target.path}/neuron-compiled-artifacts/none")
    )
    load_problem = find_load_problem(folder)
    if load_problem:
        sys.stdout.write(
            f"WARNING Exception: {load_problem}\nWARNING Failed to load the model from {folder},"
            " Recompiling...\n"
        )
        compile_application(
            build_application(settings, target, draft, family), folder, *settings_and_attempt
        )
        return ""
    sys.stdout.write(
        f"loaded the model from {folder}: nothing was compiled, nothing was compared\n"
    )
    # the loader replaces the artifact's own object by the override, and each request reads from
    # that
    sampling = override.get("on_device_sampling_config", {"global_topk": 0})
    return "" if "global_topk" in sampling else "KeyError: 'global_topk'"


def _loader_defaults(options: argparse.Namespace, speculation: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of vllm 0.9.1 neuronx_distributed.py, without and with speculation."""
    shared = {
        "tp_degree": options.tensor_parallel_size,
        "ctx_batch_size": 1,
        "batch_size": options.max_num_seqs,
        "max_context_length": options.max_model_len,
        "seq_len": options.max_model_len,
        "enable_bucketing": True,
        "is_continuous_batching": True,
        "quantized": False,
        "torch_dtype": NEURON_DTYPES.get(options.dtype, options.dtype),
    }
    if speculation:
        return {
            **shared,
            "speculation_length": speculation["num_speculative_tokens"],
            "enable_fused_speculation": True,
            "on_device_sampling_config": {"top_k": 1, "do_sample": False},
        }
    return {
        **shared,
        "padding_side": "right",
        "sequence_parallel_enabled": True,
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
    }


def _load_native(
    options: argparse.Namespace,
    speculation: dict[str, Any],
    models: tuple[ModelFolder, ModelFolder | None],
    settings_and_attempt: tuple[StandInSettings, int],
) -> str:
    """Warm up from the cache root; compile missing graphs unless that is forbidden."""
    _require_efa()
    target, draft = models
    neuron_config = (options.additional_config or {}).get("neuron_config", {})
    settings = {
        "target": target.identity,
        "draft": draft.identity if draft else None,
        "speculative": sorted(
            (name, value) for name, value in speculation.items() if name != "model"
        ),
        "tp": options.tensor_parallel_size,
        "seqs": options.max_num_seqs,
        "length": options.max_model_len,
        "dtype": options.dtype,
        "neuron": neuron_config,
        "level": options.optimization_level,
        "lnc": os.environ.get("NEURON_LOGICAL_NC_CONFIG", "2"),
        "target_platform": os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2"),
    }
    buckets = neuron_config.get("num_seqs_buckets") or [options.max_num_seqs]
    graphs = ("prefill", *(f"decode-{size}" for size in buckets), *(["draft"] if draft else []))
    graph_count = NativeCompileCache(settings=settings, graphs=graphs).warm_up(
        *settings_and_attempt
    )
    sys.stdout.write(f"{graph_count} graphs compiled, {len(graphs) - graph_count} from the cache\n")
    return ""


def _require_efa() -> None:
    """Refuse to start without an EFA device unless a variable allows it; words not the plugin's.

    Source: aws-neuron/aws-neuron-sdk deploy/environments/quickstart-deploy-dlc.rst, step 3,
    2026-08-21.

    Raises:
        VllmArgumentError: no device, and NEURON_SKIP_EFA_AFFINITY does not excuse it.
    """
    skips_check = os.environ.get("NEURON_SKIP_EFA_AFFINITY") == "1"
    if not skips_check and not (EFA_DEVICES.is_dir() and any(EFA_DEVICES.iterdir())):
        raise VllmArgumentError(
            "RuntimeError: no EFA device is there; NEURON_SKIP_EFA_AFFINITY=1 starts without one"
        )
