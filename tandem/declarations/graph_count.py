"""How many graphs the compiler makes for one artifact, where the runtime's own rule is known."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import Any

SHORTEST_BUCKET = 128  # tokens, the smallest bucket that NxD Inference chooses by itself


def count_graphs(fields: Mapping[str, Any]) -> int | None:
    """Return the number of graphs of an artifact; None where the runtime decides it by itself.

    Args:
        fields: the plain fields of its key.

    NxD Inference compiles one graph for each bucket of prefill and one for each of decode (with
    fused speculation target and draft share it): the declared buckets, or powers of two from 128 to
    the longest sequence. Source: aws-neuron/neuronx-distributed-inference v0.6.10598
    modules/autobucketing.py generate_buckets, models/model_base.py enable_context_encoding,
    enable_token_generation and enable_fused_spec. The native runtime's buckets have more
    dimensions, and no source says which of their products it compiles.
    """
    if fields.get("nxdi") is None:
        return None
    tuning = fields["tuning"]
    longest = fields["max_model_len"]
    # the library rounds the logarithm of the longest, so that no two buckets lie close together
    default_count = max(0, round(log2(longest)) - int(log2(SHORTEST_BUCKET))) + 1
    bucket_settings = (
        tuning.get(name) for name in ("context_encoding_buckets", "token_generation_buckets")
    )
    return sum(len(buckets) if buckets else default_count for buckets in bucket_settings)
