"""The artifact key: all that changes a compiled artifact, as one value, digest and readable name.

Invariant: two variants share a key exactly when one may serve the other's artifact. A mirror never
changes it, and a setting that is read at run time only is not part of it unless the artifact stores
it.

How a variant becomes a key stands in `tandem.declarations.variant_key`; this module needs no
catalogue, so that a pod can compare keys with nothing of the environment's at hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from tandem.declarations.names import model_slug

DIGEST_CHARACTERS = 12
KEY_VARIABLE = "TANDEM_ARTIFACT_KEY"  # carries `as_fields` as JSON to pods
KEY_ENTRY = "fields.json"  # where it comes from: this entry of the key's own ConfigMap


@dataclass(frozen=True, kw_only=True)
class ArtifactKey:
    """Every field that a compiled artifact depends on.

    Args:
        image_repository, image_tag, image_digest: as published; the digest is None until pinned.
        target, draft: id@revision; draft None without one.
        num_speculative_tokens: the window k; 0 without speculation.
        tensor_parallel_size, draft_tensor_parallel_size: logical cores; vLLM gives the draft the
            target's.
        max_num_seqs: batch, for prefill and decode alike.
        max_model_len: tokens.
        sampling, tuning, neuron_config: the compile settings that the server's flags carry.
        environment: the variables that change what is compiled.

    Source of the list: NxDI's NeuronConfig (aws-neuron/neuronx-distributed-inference
    models/config.py).
    """

    runtime: str
    image_repository: str
    image_tag: str
    image_digest: str | None
    sdk: str
    neuronx_cc: str | None
    nxdi: str | None
    plugin: str | None
    platform_target: str
    target: str
    draft: str | None
    mode: str
    num_speculative_tokens: int
    tensor_parallel_size: int
    draft_tensor_parallel_size: int | None
    logical_neuron_core: int
    max_num_seqs: int
    max_model_len: int
    dtype: str
    quantization: str | None
    kv_cache_quantization: str | None
    prefix_caching: bool
    async_mode: bool
    sampling: dict[str, bool | int | str]
    tuning: dict[str, object]
    neuron_config: dict[str, bool | int | str]
    environment: dict[str, str]

    @cached_property
    def digest(self) -> str:
        """Return the first characters of the SHA-256 over the canonical JSON of all fields."""
        return hashlib.sha256(self._canonical().encode()).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def name(self) -> str:
        """Return the readable prefix and the digest: the folder of the artifact."""
        parts = [model_slug(self.target.partition("@")[0]), self.mode]
        if self.draft:
            parts += [model_slug(self.draft.partition("@")[0]), f"k{self.num_speculative_tokens}"]
        parts.append(f"tp{self.tensor_parallel_size}-lnc{self.logical_neuron_core}")
        return "-".join([*parts, f"b{self.max_num_seqs}", f"s{self.max_model_len}", self.digest])

    @property
    def prefix(self) -> str:
        """Return the S3 prefix and mount path, without slashes at its ends."""
        return f"artifacts/{self.name}"

    def as_fields(self) -> dict[str, Any]:
        """Return the fields as the plain JSON values that manifests and pods carry."""
        plain: dict[str, Any] = json.loads(self._canonical())
        return plain

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """Build the key that `as_fields` wrote.

        Raises:
            ValueError: a field is missing or unknown; the message names it.
        """
        try:
            return cls(**values)
        # which names the fields that are missing, or one that is unknown
        except TypeError as error:
            raise ValueError(f"no artifact key: {error}") from None

    def _canonical(self) -> str:
        # asdict would copy each at any depth
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))


def compare_key_fields(
    own_fields: Mapping[str, Any], other_fields: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """Return field -> (my value, their value) where two keys' plain fields differ; absent is None.

    A nested mapping is compared entry by entry, as `tuning.fused_qkv`.
    """
    value_pairs: dict[str, tuple[object, object]] = {}
    for field in dict.fromkeys([*own_fields, *other_fields]):
        own_value = own_fields.get(field)
        other_value = other_fields.get(field)
        if isinstance(own_value, Mapping) and isinstance(other_value, Mapping):
            nested_pairs = compare_key_fields(own_value, other_value)
            value_pairs |= {f"{field}.{entry}": pair for entry, pair in nested_pairs.items()}
        elif own_value != other_value or type(own_value) is not type(other_value):
            value_pairs[field] = (own_value, other_value)
    return value_pairs
