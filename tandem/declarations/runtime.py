"""A Neuron serving runtime as dated data: what it is, what it serves, how its settings are spelt.

Invariant: a new release of a runtime is a change of its data file, never of code.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from tandem.declarations.experiment import Mode
from tandem.declarations.figure import DataFigure, DataFile
from tandem.declarations.record import SpecRecord

SupportVerdict = Literal["served", "unproven", "refused"]
Plain = bool | int | str


class RuntimeImage(SpecRecord):
    """The container image; a mirror replaces the repository's host and nothing else."""

    repository: str = Field(description="registry, path and name")
    tag: str = Field(description="tag")
    vulnerabilities: DataFigure[str | None] = Field(
        description="in the publisher's words; null where it tells none"
    )

    @property
    def reference(self) -> str:
        """Return `repository:tag` as published, the key of its digest."""
        return f"{self.repository}:{self.tag}"


class RuntimeVersions(SpecRecord):
    """Components of the image that change a compiled artifact; null where the image has none."""

    sdk: DataFigure[str] = Field(description="Neuron SDK")
    vllm: DataFigure[str] = Field(description="vLLM")
    neuronx_cc: DataFigure[str | None] = Field(description="compiler")
    nxdi: DataFigure[str | None] = Field(description="NxD Inference")
    plugin: DataFigure[str | None] = Field(description="vLLM's Neuron plugin")
    driver: DataFigure[str] = Field(description="host driver that the SDK was released with")
    refusing_drivers: DataFigure[tuple[str, ...]] = Field(
        description="minors of host drivers that do not start it"
    )


class ModeSupport(SpecRecord):
    """Whether one speculation mode runs, for which models and batches."""

    mode: Mode = Field(description="the mode")
    verdict: DataFigure[SupportVerdict] = Field(
        description="served, unproven (needs accept_unproven) or refused"
    )
    target_families: tuple[str, ...] = Field(
        default=(), description="families it serves; empty for any"
    )
    proven_targets: tuple[str, ...] = Field(
        default=(), description="targets with a documented run; empty for any"
    )
    max_num_seqs: DataFigure[int] | None = Field(
        None, description="largest batch; null for no limit"
    )
    shown_max_num_seqs: DataFigure[int] | None = Field(
        None, description="largest batch of a documented run; or null"
    )
    reason: str = Field(description="why, in one sentence for the operator")
    nearest: str = Field(description="what to write instead, where refused")

    def serves_family(self, family: str | None) -> bool:
        """Return whether it serves targets of a family; one that is unknown is not refused."""
        return family is None or not self.target_families or family in self.target_families

    def is_shown(self, target: str) -> bool:
        """Return whether a documented run of the mode with the target exists."""
        is_proven = not self.proven_targets or target in self.proven_targets
        return self.verdict.value == "served" and is_proven


class FlagSpelling(SpecRecord):
    """The flag of one Neuron setting of a compile program."""

    flag: str = Field(description="the flag")
    # a value or list stands behind it; a switch is there for true and absent for false; either is
    # --x or --no-x
    takes: Literal["value", "list", "switch", "either"] = Field(description="what stands behind it")


class CpuCompile(SpecRecord):
    """The settings of a compile without devices."""

    unproven: DataFigure[str] = Field(
        description="what of it no source shows; stands in the manifest of what it made"
    )
    modes: tuple[Mode, ...] = Field(description="modes that can be compiled so")
    environment: dict[str, str] = Field(description="variables that it takes")
    platform_variable: str = Field(description="variable that takes the compiler target")


class CompileSpelling(SpecRecord):
    """What both ways to make an artifact have."""

    environment: dict[str, str] = Field(
        description="variables of every compile, in addition to a server's"
    )
    work_variables: dict[str, str] = Field(
        description="variable to the folder of local disk that it takes"
    )
    unproven: DataFigure[str | None] = Field(
        description="what of it no source shows, in a sentence; null for nothing"
    )
    cpu: CpuCompile = Field(description="how it compiles without devices")


class ProgramCompile(CompileSpelling):
    """A program next to the server makes the artifact; its flags say what the loader would take.

    The loader's own settings are those it makes of the server's flags before the Neuron settings
    override them.
    """

    kind: Literal["program"] = Field(
        description="`program`: a program of its own compiles and ends"
    )
    command: tuple[str, ...] = Field(description="program and leading arguments")
    family_flag: str = Field(description="flag that takes the model's family")
    families: dict[str, str] = Field(
        description="family, as models call it, to the program's word for it"
    )
    leading_arguments: tuple[str, ...] = Field(description="arguments after the family")
    model_flag: str = Field(description="flag that takes the target's folder")
    draft_flag: str = Field(description="flag that takes the draft's folder")
    artifact_flag: str = Field(description="flag that takes the artifact's folder")
    loader_declared: dict[str, str] = Field(
        description="loader's setting to the serving setting it is made of"
    )
    loader_constants: dict[str, Plain] = Field(description="loader's settings of every server")
    window_setting: str = Field(description="loader's setting that takes num_speculative_tokens")
    sampling_setting: str = Field(description="setting whose fields are flags of their own")
    flags: dict[str, FlagSpelling] = Field(
        description="every setting to its flag; sampling's fields as setting.field"
    )
    closing_arguments: tuple[str, ...] = Field(description="arguments of every compile")


class ServerCompile(CompileSpelling):
    """An artifact is what the server leaves in its cache, run with its own flags until healthy."""

    kind: Literal["server"] = Field(description="`server`: the server compiles as it starts")
    health_path: str = Field(description="path that answers once everything is compiled")
    dropped_variables: tuple[str, ...] = Field(
        description="the server's variables that would forbid it to compile"
    )


class RuntimeSpelling(SpecRecord):
    """How flags and environment are spelt."""

    command: tuple[str, ...] = Field(description="program and leading arguments")
    neuron_config_flag: str = Field(description="flag that takes the JSON of Neuron settings")
    neuron_config_key: str | None = Field(
        description="key the settings are nested under; null for none"
    )
    constant_arguments: tuple[str, ...] = Field(description="arguments of every server")
    constant_neuron_config: dict[str, Plain] = Field(description="settings of every server")
    # speculation changes the runtime's own defaults of these two, so every arm states them
    greedy_sampling: dict[str, Plain] = Field(
        description="on_device_sampling_config of every server"
    )
    tuning_defaults: dict[str, Plain] = Field(
        description="settings of serving.tuning that no file needs to write"
    )
    async_key: str | None = Field(
        description="Neuron setting that takes async_mode; null where a flag does"
    )
    async_off_arguments: tuple[str, ...] = Field(
        description="arguments that turn asynchronous execution off"
    )
    speculation_neuron_config: dict[str, dict[str, bool]] = Field(
        description="mode to the Neuron settings it adds"
    )
    speculation_methods: dict[str, str | None] = Field(
        description="mode to vLLM's `method`; null: it is never read"
    )
    draft_takes_max_model_len: bool = Field(
        description="the speculative config takes the draft's max_model_len"
    )
    environment: dict[str, str] = Field(
        description="environment variables of every server, read at run time only"
    )
    compile_environment: dict[str, str] = Field(
        description="those that change what is compiled: part of the key"
    )
    logical_core_variable: str | None = Field(description="environment variable that takes the LNC")
    artifact_variable: str = Field(
        description="environment variable that takes the artifact's folder"
    )
    artifact_is_cache: bool = Field(
        description="the artifact is a cache that needs locks: copied to local disk"
    )
    tuning_keys: tuple[str, ...] = Field(description="fields of serving.tuning that it reads")
    tuning_flags: dict[str, str] = Field(
        description="those of them that are flags, not Neuron settings, to the flag"
    )
    compile: ProgramCompile | ServerCompile = Field(
        discriminator="kind", description="how an artifact is made"
    )


class RuntimeCounters(SpecRecord):
    """Which of the server's own figures can be trusted."""

    speculation: DataFigure[Literal["live", "flat"]] = Field(
        description="vLLM's spec_decode counters count, or stay 0"
    )
    tokens_per_step: DataFigure[Literal["k", "k+1"]] = Field(
        description="most tokens that a step of window k commits"
    )


class Runtime(DataFile):
    """One runtime; the file's name is its name."""

    name: str = Field(description="the file's name")
    title: str = Field(description="what it is, for a person")
    rendered: bool = Field(
        description="Tandem renders it; false: known only in order to say why not"
    )
    not_rendered_because: str | None = Field(description="the reason, where rendered is false")
    support: DataFigure[str] = Field(description="its publisher's support, in a sentence")
    support_ends: DataFigure[str | None] = Field(
        description="release without support for it; null: none announced"
    )
    image: RuntimeImage = Field(description="container image")
    versions: RuntimeVersions = Field(description="components")
    platform_target: str = Field(description="compiler target, part of the artifact key")
    modes: tuple[ModeSupport, ...] = Field(
        min_length=len(get_args(Mode)), description="every mode, served or not"
    )
    target_families: DataFigure[tuple[str, ...]] = Field(
        description="model families it serves as target"
    )
    proven_targets: DataFigure[tuple[str, ...]] = Field(description="targets with a documented run")
    needs_vocabulary_match: DataFigure[bool] = Field(
        description="a head's own vocabulary must equal the target's"
    )
    spelling: RuntimeSpelling | None = Field(
        description="how its settings are spelt; null where not rendered"
    )
    counters: RuntimeCounters = Field(description="which counters work")

    def mode(self, mode: str) -> ModeSupport:
        """Return what is known of `mode`; a runtime's file lists all of them."""
        return next(support for support in self.modes if support.mode == mode)
