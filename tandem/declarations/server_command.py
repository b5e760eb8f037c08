"""The command of one server: the one place where a variant becomes flags and environment variables.

Invariant: for two variants of one experiment the result differs only in the speculation fields;
every default that speculation would change is written out for both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tandem.declarations.catalogue import Catalogue
from tandem.declarations.experiment import Experiment, Variant
from tandem.declarations.model import ModelConfig
from tandem.declarations.names import ARTIFACT_FOLDER, MODELS_MOUNT, SERVER_PORT
from tandem.declarations.runtime import RuntimeSpelling


@dataclass(frozen=True, kw_only=True)
class ServerCommand:
    """What a container runs.

    Args:
        command: program and leading arguments; replaces the image's entrypoint.
        arguments: flags, in a fixed order, each flag followed by its value.
        environment: variables.
    """

    command: tuple[str, ...]
    arguments: tuple[str, ...]
    environment: dict[str, str]


def build_server_command(
    experiment: Experiment, variant: Variant, catalogue: Catalogue
) -> ServerCommand:
    """Spell one variant for its runtime.

    The experiment must have passed the rules: its runtime is rendered and its models are known.
    """
    serving = experiment.serving
    target = catalogue.models[experiment.target]
    spelling = catalogue.runtimes[experiment.runtime].spelling
    assert spelling is not None  # a rule refuses runtimes that are not rendered
    settings = neuron_settings(experiment, variant, spelling)
    if spelling.neuron_config_key:
        settings = {spelling.neuron_config_key: settings}
    tuning = serving.tuning.model_dump()
    flags = {
        "--served-model-name": experiment.target,
        "--host": "0.0.0.0",  # noqa: S104  # inside the pod; the network policy decides who arrives
        "--port": SERVER_PORT,
        "--tensor-parallel-size": serving.tensor_parallel_size,
        "--max-num-seqs": serving.max_num_seqs,
        "--max-model-len": serving.max_model_len,
        "--dtype": serving.dtype,
        spelling.neuron_config_flag: json.dumps(settings),
    }
    for name, flag in spelling.tuning_flags.items():
        if tuning[name] is not None:
            flags[flag] = tuning[name]
    if variant.mode != "none":
        config: dict[str, object] = {}
        method = spelling.speculation_methods[variant.mode]
        if method:
            config["method"] = method
        if variant.draft:
            config["model"] = model_folder(catalogue.models[variant.draft])
        config["num_speculative_tokens"] = variant.num_speculative_tokens
        if spelling.draft_takes_max_model_len:
            config["max_model_len"] = serving.max_model_len
        flags["--speculative-config"] = json.dumps(config)

    # the model comes first and bare: `vllm serve` took --model for a while, later releases do not
    arguments = [model_folder(target)]
    for flag, value in flags.items():
        arguments += [flag, str(value)]
    async_arguments = () if serving.async_mode else spelling.async_off_arguments
    return ServerCommand(
        command=spelling.command,
        arguments=(*arguments, *spelling.constant_arguments, *async_arguments),
        environment={
            **spelling.compile_environment,
            **spelling.environment,
            **lnc_variable(experiment, spelling),
            spelling.artifact_variable: ARTIFACT_FOLDER,
        },
    )


def model_folder(model: ModelConfig) -> str:
    """Return the folder in the container where one model's snapshot is mounted."""
    return f"{MODELS_MOUNT}/{model.prefix().removeprefix('models/')}"


def neuron_settings(
    experiment: Experiment, variant: Variant, spelling: RuntimeSpelling
) -> dict[str, object]:
    """Return the Neuron settings of the server, before they are nested and spelt as JSON."""
    serving = experiment.serving
    tuning = serving.tuning.model_dump()
    json_keys = [name for name in spelling.tuning_keys if name not in spelling.tuning_flags]
    settings = {
        **spelling.constant_neuron_config,
        "on_device_sampling_config": spelling.greedy_sampling,
    }
    if spelling.async_key:
        settings[spelling.async_key] = serving.async_mode
    return {
        **settings,
        **spelling.tuning_defaults,
        **{name: tuning[name] for name in json_keys if tuning[name] not in (None, ())},
        **spelling.speculation_neuron_config.get(variant.mode, {}),
    }


def lnc_variable(experiment: Experiment, spelling: RuntimeSpelling) -> dict[str, str]:
    """Return the variable of the LNC: the same at compile and serve, or no artifact loads."""
    lnc = str(experiment.serving.logical_neuron_core)
    return {spelling.logical_core_variable: lnc} if spelling.logical_core_variable else {}
