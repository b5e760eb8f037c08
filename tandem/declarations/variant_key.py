"""The artifact key of a variant: which declared and dated values reach the compiler."""

from __future__ import annotations

from tandem.declarations.artifact_key import ArtifactKey
from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment, Variant


def compute_artifact_key(
    experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> ArtifactKey:
    """Compute the key of one variant's artifact.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    runtime = catalogue.runtimes[experiment.runtime]
    models = catalogue.models
    serving = experiment.serving
    spelling = runtime.spelling
    versions = runtime.versions
    assert spelling is not None  # a rule refuses runtimes that are not rendered
    tuning = {
        name: spelling.tuning_defaults.get(name) if value is None else value
        for name, value in serving.tuning.model_dump().items()
    }
    settings = (
        "tensor_parallel_size",
        "logical_neuron_core",
        "max_num_seqs",
        "max_model_len",
        "dtype",
        "async_mode",
    )
    return ArtifactKey(
        runtime=runtime.name,
        image_repository=runtime.image.repository,
        image_tag=runtime.image.tag,
        image_digest=catalogue.digests.find_digest(runtime.image.reference),
        **{name: getattr(versions, name).value for name in ("sdk", "neuronx_cc", "nxdi", "plugin")},
        **{name: getattr(serving, name) for name in settings},
        platform_target=runtime.platform_target,
        target=models[experiment.target].full_id(),
        draft=models[variant.draft].full_id() if variant.draft else None,
        mode=variant.mode,
        num_speculative_tokens=variant.num_speculative_tokens or 0,
        draft_tensor_parallel_size=serving.tensor_parallel_size if variant.draft else None,
        quantization=None,  # no runtime renders quantized weights yet
        kv_cache_quantization=None,
        # rendered off in every variant: a cache hit would flatter the second arm
        prefix_caching=False,
        sampling=spelling.greedy_sampling,
        tuning={name: tuning[name] for name in spelling.tuning_keys},
        neuron_config={
            **spelling.constant_neuron_config,
            **spelling.speculation_neuron_config.get(variant.mode, {}),
        },
        environment=spelling.compile_environment,
    )
