"""NxD Inference's NeuronConfig as in neuron_config.json: every attribute, from given settings.

Source: aws-neuron/neuronx-distributed-inference tag v0.6.10598 models/config.py,
NeuronConfig.__init__, OnDeviceSamplingConfig.__init__ and to_dict. That class ignores unknown
settings with a warning; this module ignores them too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any


class NeuronSettingsError(Exception):
    """Settings that the real class refuses, in its own words."""


# attributes whose default depends on no other
PLAIN_DEFAULTS: dict[str, Any] = {
    "allow_input_truncation": False,
    "on_cpu": False,
    "output_logits": False,
    "cast_type": "config",
    "rpl_reduce_dtype": None,
    "attention_dtype": None,
    "vocab_parallel": False,
    "enable_cte_modular_flow": False,
    "layer_boundary_markers": False,
    "fused_qkv": False,
    "sequence_parallel_enabled": False,
    "weight_gather_seq_len_threshold": 32768,
    "is_continuous_batching": False,
    "kv_cache_padding_size": 0,
    "async_mode": False,
    "enable_bucketing": False,
    "bucket_n_active_tokens": False,
    "context_encoding_buckets": None,
    "prefix_buckets": None,
    "token_generation_buckets": None,
    "quantized": False,
    "quantized_checkpoints_path": None,
    "quantization_type": "per_tensor_symmetric",
    "quantization_dtype": "int8",
    "modules_to_not_convert": None,
    "draft_model_modules_to_not_convert": None,
    "kv_cache_quant": False,
    "speculation_length": 0,
    "enable_fused_speculation": False,
    "enable_eagle_speculation": False,
    "is_eagle_draft": False,
    "enable_eagle_draft_input_norm": False,
    "token_tree_config": None,
    "is_medusa": False,
    "medusa_speculation_length": 0,
    "num_medusa_heads": 0,
    "medusa_tree": None,
    "is_block_kv_layout": False,
    "is_prefix_caching": False,
    "chunked_prefill_config": None,
    "lora_config": None,
    "tp_degree": 1,
    "cp_degree": 1,
    "attention_dp_degree": 1,
    "pp_degree": 1,
    "ep_degree": 1,
    "save_sharded_checkpoint": False,
    "skip_sharding": False,
    "qk_layernorm": False,
    "start_rank_id": 0,
    "flash_decoding_enabled": False,
    "disable_kv_cache_tiling": False,
    "k_cache_transposed": False,
    "attn_kernel_enabled": None,
    "strided_context_parallel_kernel_enabled": False,
    "qkv_kernel_enabled": False,
    "qkv_kernel_nbsd_layout": False,
    "mlp_kernel_enabled": False,
    "fused_rmsnorm_skip_gamma": False,
    "mlp_kernel_fuse_residual_add": False,
    "qkv_kernel_fuse_residual_add": False,
    "quantized_mlp_kernel_enabled": False,
    "activation_quantization_type": None,
    "attn_tkg_nki_kernel_enabled": False,
    "attn_tkg_builtin_kernel_enabled": False,
    "attn_block_tkg_nki_kernel_enabled": False,
    "attn_block_cte_nki_kernel_enabled": False,
    "attn_block_tkg_nki_kernel_cache_update": False,
    "attn_block_tkg_nki_kernel_cascaded_attention": False,
    "rmsnorm_quantize_kernel_enabled": False,
    "quantize_clamp_bound": math.inf,
    "moe_fused_nki_kernel_enabled": None,
    "router_topk_nki_kernel_enabled": None,
    "expert_mlp_nki_kernel_enabled": None,
    "shared_mlp_nki_kernel_enabled": None,
    "lm_head_pad_alignment_size": 1,
    "cc_pipeline_tiling_factor": 2,
    "seq_len_threshold_for_cc_tiling": 16384,
    "target": None,
    "enable_spill_reload_dge": False,
    "apply_seq_ids_mask": False,
    "skip_warmup": False,
    "scratchpad_page_size": None,
    "enable_output_completion_notifications": False,
}
SAMPLING_DEFAULTS: dict[str, Any] = {
    "do_sample": False,
    "top_k": 1,
    "top_p": 1.0,
    "temperature": 1.0,
    "dynamic": False,
    "deterministic": False,
    "global_topk": 256,
    "on_device_sampling_config": True,
    "top_k_kernel_enabled": False,
}
ATTENTION_CLASSES = {"llama": "NeuronLlamaAttention", "qwen3": "NeuronQwen3Attention"}
LONG_CONTEXT_TOKENS = 32 * 1024
TILE_TOKENS = 128


def build_sampling(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return OnDeviceSamplingConfig's attributes; ignore settings that it does not know."""
    return {name: settings.get(name, default) for name, default in SAMPLING_DEFAULTS.items()}


def build_neuron_config(settings: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Return every attribute of a NeuronConfig.

    Args:
        settings: keyword arguments; `on_device_sampling_config` a mapping or None.
        family: of the model, `qwen3` or `llama`.

    Raises:
        NeuronSettingsError: an assertion of the real class refuses the settings.
    """
    values = {name: value for name, value in settings.items() if value is not None}
    batch = values.get("batch_size", 1)
    length = values.get("seq_len", 128)
    attributes: dict[str, Any] = {
        name: values.get(name, default) for name, default in PLAIN_DEFAULTS.items()
    }
    context = values.get("max_context_length", length)
    attributes |= {
        "batch_size": batch,
        "padding_side": values.get("padding_side", "right"),
        "seq_len": length,
        "n_active_tokens": values.get("n_active_tokens", length),
        "n_positions": values.get("n_positions", length),
        "is_prefill_stage": None,
        "torch_dtype": values.get("torch_dtype", "bfloat16"),
        "overrides_torch_dtype": "torch_dtype" in values,
        "max_context_length": context,
        "max_new_tokens": values.get("max_new_tokens", length - context) or None,
        "max_length": values.get("max_length", length),
        "attn_cls": ATTENTION_CLASSES.get(family, "NeuronLlamaAttention"),
        "buckets": values.get("buckets", [length]),
        "pa_num_blocks": values.get("pa_num_blocks", batch),
        "pa_block_size": values.get("pa_block_size", length),
        "enable_token_tree": False,
        "is_chunked_prefill": False,
        "weights_to_skip_layout_optimization": [],
        "enable_long_context_mode": context >= LONG_CONTEXT_TOKENS,
        **{
            f"{kind}_batch_size": values.get(f"{kind}_batch_size", batch)
            for kind in ("ctx", "tkg", "max", "kv_cache", "spec")
        },
    }
    sampling_settings = values.get("on_device_sampling_config")
    attributes["on_device_sampling_config"] = (
        build_sampling(sampling_settings) if isinstance(sampling_settings, Mapping) else None
    )
    attributes["enable_fused_speculation"] |= attributes["enable_eagle_speculation"]
    world_size = values.get(
        "world_size", attributes["tp_degree"] * attributes["pp_degree"] * attributes["ep_degree"]
    )
    attributes |= {
        "world_size": world_size,
        "local_ranks_size": values.get("local_ranks_size", world_size),
    }
    attributes["logical_nc_config"] = _logical_cores(values)
    attributes["lm_head_pad"] = values.get("lm_head_pad", attributes["logical_nc_config"] > 1)
    has_tiles = (
        attributes["enable_fused_speculation"]
        and attributes["max_length"] > TILE_TOKENS
        and attributes["max_length"] % TILE_TOKENS == 0
    )
    attributes["kv_cache_tiling"] = has_tiles and not attributes["disable_kv_cache_tiling"]
    attributes["tile_cc"] = (
        attributes["cc_pipeline_tiling_factor"] > 1 and attributes["mlp_kernel_enabled"]
    )
    _check_attributes(attributes)
    return attributes


def _logical_cores(values: Mapping[str, Any]) -> int:
    """Return the environment's, else the setting's, else the platform's value (_get_lnc)."""
    variable = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    platform = 2 if os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2") == "trn2" else 1
    return int(variable) if variable else int(values.get("logical_nc_config", platform))


def _check_attributes(attributes: dict[str, Any]) -> None:
    if attributes["max_context_length"] > attributes["max_length"]:
        raise NeuronSettingsError(
            "AssertionError: max_context_length cannot be more than max_length"
        )
    for name, limit_name, kind in (
        ("context_encoding_buckets", "max_context_length", "Context"),
        ("token_generation_buckets", "max_length", "Token generation"),
    ):
        if attributes[name]:
            attributes[name] = sorted(attributes[name])
            if attributes[name][-1] > attributes[limit_name]:
                raise NeuronSettingsError(
                    f"AssertionError: {kind} bucket {attributes[name][-1]} should be <="
                    f" {attributes[limit_name]}"
                )
    if attributes["quantized"] and not attributes["quantized_checkpoints_path"]:
        raise NeuronSettingsError("AssertionError: quantized_checkpoints_path is required")
    if attributes["tp_degree"] % attributes["cp_degree"]:
        raise NeuronSettingsError("ValueError: TP Degree must be evenly divisible by CP Degree")
    for bucket in attributes["context_encoding_buckets"] or [attributes["max_context_length"]]:
        if attributes["sequence_parallel_enabled"] and bucket % attributes["tp_degree"]:
            raise NeuronSettingsError(  # models/model_base.py validate_sequence_parallel
                f"AssertionError: When sequence parallel is enabled, context length ({bucket}) must"
                f" be divisible by TP group size ({attributes['tp_degree']})"
            )
