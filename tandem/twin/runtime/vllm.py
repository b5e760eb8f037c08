"""The stand-in for `vllm serve`: of vLLM 0.9.1 with NxD Inference, and of 0.29.0 with the native plugin."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tandem.twin.runtime.checkpoint import Model, ModelError, read_model
from tandem.twin.runtime.knobs import Knobs
from tandem.twin.runtime.native import Cache, MissError
from tandem.twin.runtime.neuron_config import SettingsError
from tandem.twin.runtime.nxdi import CompileError, application, compile_to, why_not_loadable
from tandem.twin.runtime.programs import USAGE, UnknownVariableError, add_flags, announce, check_environment, programs
from tandem.twin.runtime.serving import serve

FAMILIES = {"Qwen3ForCausalLM": "qwen3", "LlamaForCausalLM": "llama"}
# vllm 0.9.1 neuronx_distributed.py TORCH_DTYPE_TO_NEURON_AMP
DTYPES = {"auto": "float32", "half": "float16", "float": "float32"}
SPECULATIVE = {
    "vllm-nxdi": {"model", "num_speculative_tokens", "max_model_len", "method"},
    "vllm-native": {"model", "num_speculative_tokens", "method"},
}
NATIVE_METHODS = {"eagle3"}
EFA_DEVICES = Path("/sys/class/infiniband")  # where the EFA driver lists its devices, as every RDMA driver


class RefusedError(Exception):
    """What vLLM refuses, in its own words."""


def main(program: str, argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; the exit code.

    Args:
        program: vllm-nxdi or vllm-native.
        argv: arguments; the process's own by default.
    """
    announce(program)
    try:
        check_environment(os.environ)
    except UnknownVariableError as error:
        sys.stdout.write(f"{error}\n")
        return USAGE
    options = _parse(program, sys.argv[1:] if argv is None else argv)
    knobs = Knobs.read()
    ended = threading.Event()
    if not knobs.ignore_sigterm:
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
    attempt = knobs.begin()
    try:
        speculative = _check_speculation(program, options)
        target = read_model(options.model)
        draft = read_model(speculative["model"]) if speculative.get("model") else None
        load = _load_nxdi if program == "vllm-nxdi" else _load_native
        fault = load(options, speculative, (target, draft), (knobs, attempt))
    except (RefusedError, ModelError, SettingsError, CompileError, MissError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return serve(options.host or "0.0.0.0", options.port, ended, fault)  # noqa: S104 - the real default


def _parse(program: str, argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    serving = parser.add_subparsers(required=True, dest="command").add_parser("serve", allow_abbrev=False)
    serving.add_argument("model")
    add_flags(serving, programs()[program]["flags"])
    return parser.parse_args(argv)


def _check_speculation(program: str, options: argparse.Namespace) -> dict[str, Any]:
    """Refuse what vLLM's SpeculativeConfig refuses (vllm 0.9.1 vllm/config.py)."""
    said: dict[str, Any] = options.speculative_config or {}
    unknown = sorted(set(said) - SPECULATIVE[program])
    if unknown:
        raise RefusedError(f"TypeError: SpeculativeConfig got an unexpected keyword argument {unknown[0]!r}")
    if not said:
        return said
    if not isinstance(said.get("num_speculative_tokens"), int) or said["num_speculative_tokens"] < 1:
        raise RefusedError("ValueError: num_speculative_tokens must be greater than zero")
    of_draft = said.get("max_model_len")
    if of_draft is not None and of_draft > options.max_model_len:
        raise RefusedError(
            f"ValueError: speculative_max_model_len={of_draft} cannot be larger than "
            f"target_max_model_len={options.max_model_len}"
        )
    if program == "vllm-native":
        if said.get("method") not in NATIVE_METHODS:
            raise RefusedError(f"NotImplementedError: method {said.get('method')!r} is not supported on Neuron")
        if os.environ.get("VLLM_NEURON_CPU_COMPILE") == "1":
            raise RefusedError("ValueError: Speculative decoding is not supported with VLLM_NEURON_CPU_COMPILE")
    return said


def _load_nxdi(
    options: argparse.Namespace, speculative: dict[str, Any], models: tuple[Model, Model | None],
    how: tuple[Knobs, int],
) -> str:  # fmt: skip
    """Load what NEURON_COMPILED_ARTIFACTS names, or compile into it; what every request will then meet."""
    override = options.override_neuron_config or {}
    settings = {**_loader_defaults(options, speculative), **override}
    target, draft = models
    family = FAMILIES.get((target.config.get("architectures") or [""])[0])
    if family is None:
        raise RefusedError(f"ValueError: Model architectures {target.config.get('architectures')} are not supported")
    folder = Path(os.environ.get("NEURON_COMPILED_ARTIFACTS", f"{target.path}/neuron-compiled-artifacts/none"))
    why = why_not_loadable(folder)
    if why:
        sys.stdout.write(f"WARNING Exception: {why}\nWARNING Failed to load the model from {folder}, Recompiling...\n")
        compile_to(application(settings, target, draft, family), folder, *how)
        return ""
    sys.stdout.write(f"loaded the model from {folder}: nothing was compiled, nothing was compared\n")
    # the loader puts the override in the place of the artifact's own object, and each request reads from it
    sampling = override.get("on_device_sampling_config", {"global_topk": 0})
    return "" if "global_topk" in sampling else "KeyError: 'global_topk'"


def _loader_defaults(options: argparse.Namespace, speculative: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of vllm 0.9.1 neuronx_distributed.py, without and with speculation."""
    shared = {
        "tp_degree": options.tensor_parallel_size, "ctx_batch_size": 1, "batch_size": options.max_num_seqs,
        "max_context_length": options.max_model_len, "seq_len": options.max_model_len, "enable_bucketing": True,
        "is_continuous_batching": True, "quantized": False, "torch_dtype": DTYPES.get(options.dtype, options.dtype),
    }  # fmt: skip
    if speculative:
        return {
            **shared, "speculation_length": speculative["num_speculative_tokens"], "enable_fused_speculation": True,
            "on_device_sampling_config": {"top_k": 1, "do_sample": False},
        }  # fmt: skip
    return {
        **shared, "padding_side": "right", "sequence_parallel_enabled": True,
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
    }  # fmt: skip


def _load_native(
    options: argparse.Namespace, speculative: dict[str, Any], models: tuple[Model, Model | None],
    how: tuple[Knobs, int],
) -> str:  # fmt: skip
    """Warm up from the cache root; compile what is missing unless that is forbidden."""
    _require_efa()
    target, draft = models
    neuron = (options.additional_config or {}).get("neuron_config", {})
    settings = {
        "target": target.identity, "draft": draft.identity if draft else None, "speculative": sorted(
            (name, value) for name, value in speculative.items() if name != "model"
        ), "tp": options.tensor_parallel_size, "seqs": options.max_num_seqs, "length": options.max_model_len,
        "dtype": options.dtype, "neuron": neuron, "level": options.optimization_level,
        "lnc": os.environ.get("NEURON_LOGICAL_NC_CONFIG", "2"),
        "target_platform": os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2"),
    }  # fmt: skip
    buckets = neuron.get("num_seqs_buckets") or [options.max_num_seqs]
    graphs = ("prefill", *(f"decode-{size}" for size in buckets), *(["draft"] if draft else []))
    compiled = Cache(settings=settings, graphs=graphs).warm_up(*how)
    sys.stdout.write(f"{compiled} graphs compiled, {len(graphs) - compiled} from the cache\n")
    return ""


def _require_efa() -> None:
    """Refuse to start without an EFA device, unless told to look for none; the words are not the plugin's own.

    Source: aws-neuron/aws-neuron-sdk deploy/environments/quickstart-deploy-dlc.rst, step 3, 2026-08-21.

    Raises:
        RefusedError: no device, and NEURON_SKIP_EFA_AFFINITY does not excuse it.
    """
    skipped = os.environ.get("NEURON_SKIP_EFA_AFFINITY") == "1"
    if not skipped and not (EFA_DEVICES.is_dir() and any(EFA_DEVICES.iterdir())):
        raise RefusedError("RuntimeError: no EFA device is there; NEURON_SKIP_EFA_AFFINITY=1 starts without one")
