"""The artifact key: all that changes a compiled artifact, as one value, one digest and one readable name.

Invariant: two variants share a key exactly when one may serve the other's artifact. A mirror never changes
it, and a setting that is read at run time only is not part of it unless the artifact stores it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from tandem.spec.catalogue import Catalogue
from tandem.spec.experiment import Experiment, Variant, slug
from tandem.spec.model import Model

DIGEST_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactKey:
    """Every field that a compiled artifact depends on.

    Args:
        image_repository, image_tag, image_digest: as published; the digest is None until pinned.
        target, draft: id@revision; draft None without one.
        speculation_length: num_speculative_tokens, 0 without speculation.
        tensor_parallel_size, draft_tensor_parallel_size: logical cores; vLLM gives the draft the target's.
        max_num_seqs: batch, for prefill and decode alike. max_model_len: tokens.
        sampling, tuning, neuron_config: the compile settings that the server's flags carry.
        environment: the variables that change what is compiled.

    Source of the list: NxDI's NeuronConfig (aws-neuron/neuronx-distributed-inference models/config.py).
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
    speculation_length: int
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

    @property
    def digest(self) -> str:
        """Return the first characters of the SHA-256 over the canonical JSON of all fields."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]

    @property
    def name(self) -> str:
        """Return the readable prefix and the digest: the folder of the artifact."""
        draft = [slug(self.draft.partition("@")[0]), f"k{self.speculation_length}"] if self.draft else []
        parts = [
            slug(self.target.partition("@")[0]), self.mode, *draft,
            f"tp{self.tensor_parallel_size}", f"lnc{self.logical_neuron_core}",
            f"b{self.max_num_seqs}", f"s{self.max_model_len}", self.digest,
        ]  # fmt: skip
        return "-".join(parts)

    @property
    def prefix(self) -> str:
        """Return the S3 prefix and mount path, without slashes at its ends."""
        return f"artifacts/{self.name}"

    def differences(self, other: ArtifactKey) -> dict[str, tuple[object, object]]:
        """Return the fields that differ, each with this key's and the other's value."""
        mine, theirs = asdict(self), asdict(other)
        return {field: (mine[field], theirs[field]) for field in mine if mine[field] != theirs[field]}


def artifact_key(experiment: Experiment, variant: Variant, catalogue: Catalogue) -> ArtifactKey:
    """Compute the key of one variant's artifact.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    runtime, models = catalogue.runtimes[experiment.runtime], catalogue.models
    serving, spelling, versions = experiment.serving, runtime.spelling, runtime.versions
    assert spelling is not None  # a rule refuses runtimes that are not rendered
    tuning = serving.tuning.model_dump()
    speculation = spelling.speculation_neuron_config.get(variant.mode, {})
    return ArtifactKey(
        runtime=runtime.name,
        image_repository=runtime.image.repository,
        image_tag=runtime.image.tag,
        image_digest=catalogue.digests.of(runtime.image.reference),
        sdk=versions.sdk.value,
        neuronx_cc=versions.neuronx_cc.value,
        nxdi=versions.nxdi.value,
        plugin=versions.plugin.value,
        platform_target=runtime.platform_target,
        target=_pinned(models[experiment.target]),
        draft=_pinned(models[variant.draft]) if variant.draft else None,
        mode=variant.mode,
        speculation_length=variant.num_speculative_tokens or 0,
        tensor_parallel_size=serving.tensor_parallel_size,
        draft_tensor_parallel_size=serving.tensor_parallel_size if variant.draft else None,
        logical_neuron_core=serving.logical_neuron_core,
        max_num_seqs=serving.max_num_seqs,
        max_model_len=serving.max_model_len,
        dtype=serving.dtype,
        quantization=None,  # no runtime renders quantized weights yet
        kv_cache_quantization=None,
        prefix_caching=False,  # rendered off in every variant: a cache hit would flatter whoever runs second
        async_mode=serving.async_mode,
        sampling=spelling.greedy_sampling,
        tuning={name: tuning[name] for name in spelling.tuning_keys},
        neuron_config={**spelling.constant_neuron_config, **speculation},
        environment=spelling.compile_environment,
    )


def _pinned(model: Model) -> str:
    return f"{model.id}@{model.revision_or_main()}"
