"""An experiment: what is compared, owned by ML engineers; it knows no account and no region.

Invariant: a variant holds a name and the speculation fields, nothing else, so that two variants of
one experiment can differ in nothing else.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from tandem.declarations.field_type import Digest, Label, Name, match_text
from tandem.declarations.names import TASK_NAME_PATTERN, TASK_NAME_WORDS, model_slug
from tandem.declarations.record import INTEGER_ONLY, SpecRecord
from tandem.declarations.suite_file import DeclaredSuite, SuiteFile

Mode = Literal["none", "vanilla", "fused", "eagle", "eagle3", "medusa"]
# what each mode drafts with; the others have no draft
DRAFT_KINDS = {
    "vanilla": "causal-lm",
    "fused": "causal-lm",
    "eagle": "eagle-head",
    "eagle3": "eagle3-head",
}
_MODEL_WORDS = "a model id, organisation/name, that has a file in tandem/declarations/data/models"
ModelId = Annotated[str, match_text(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$", _MODEL_WORDS)]
Tokens = Annotated[int, Field(ge=1, le=1_048_576)]
Window = Annotated[
    int, Field(ge=1, le=64, json_schema_extra={"allowed": "a whole number from 1 to 64"})
]
Bucket = Annotated[
    int,
    Field(ge=1, le=1_048_576, json_schema_extra={"allowed": "a whole number from 1 to 1048576"}),
]
Buckets = tuple[Bucket, ...]
Streams = Annotated[
    int, Field(ge=1, le=1024, json_schema_extra={"allowed": "a whole number from 1 to 1024"})
]
Loads = tuple[Streams, ...]
TaskName = Annotated[str, match_text(TASK_NAME_PATTERN, TASK_NAME_WORDS)]
CompilerLevel = Annotated[Literal[1, 2, 3], INTEGER_ONLY]
CoreSize = Annotated[Literal[1, 2], INTEGER_ONLY]


class TuningSettings(SpecRecord):
    """Compile settings shared by all variants; null or empty leaves the runtime's own default.

    Where speculation would change that default, the runtime's data has the value of all variants.
    """

    fused_qkv: bool | None = Field(None, description="one projection for query, key and value")
    sequence_parallel_enabled: bool | None = Field(
        None, description="split activations by token; null: false on nxdi-v0"
    )
    qkv_kernel_enabled: bool | None = Field(None, description="NKI kernel for the QKV projection")
    attn_kernel_enabled: bool | None = Field(
        None, description="NKI kernel for attention in prefill"
    )
    mlp_kernel_enabled: bool | None = Field(None, description="NKI kernel for the MLP")
    cc_pipeline_tiling_factor: int | None = Field(
        None, ge=1, le=8, description="tiles of a collective"
    )
    context_encoding_buckets: Buckets = Field((), description="prefill lengths compiled, in tokens")
    token_generation_buckets: Buckets = Field((), description="decode lengths compiled, in tokens")
    num_seqs_buckets: Buckets = Field((), description="native: batch sizes compiled, in sequences")
    optimization_level: CompilerLevel | None = Field(None, description="native: compiler level")


class ServingSettings(SpecRecord):
    """Everything the variants share."""

    tensor_parallel_size: int = Field(ge=1, le=128, description="TP degree, in logical cores")
    logical_neuron_core: CoreSize = Field(description="LNC: physical cores per logical core")
    devices: int = Field(ge=1, le=16, description="Neuron devices (chips) that one variant claims")
    device_group: Annotated[Literal[4, 8, 16] | None, INTEGER_ONLY] = Field(
        description=(
            "size of the connected group all devices must lie in; null where the type has no groups"
        )
    )
    max_num_seqs: int = Field(ge=1, le=1024, description="most sequences in a batch")
    max_model_len: Tokens = Field(
        description="most tokens of one sequence, prompt and output together"
    )
    dtype: Literal["bfloat16", "float16"] = Field(
        "bfloat16", description="type of weights and activations"
    )
    async_mode: bool = Field(
        description="asynchronous decode steps; said explicitly, the same in every variant"
    )
    cpu: int = Field(ge=1, le=192, description="CPUs requested for one server")
    memory_gib: int = Field(ge=8, le=2048, description="memory requested for one server, in GiB")
    shm_gib: int = Field(
        ge=1, le=256, description="size of /dev/shm, in GiB; counts against memory_gib"
    )
    copy_artifact: bool = Field(
        False, description="copy the artifact to local disk; native copies it always"
    )
    tuning: TuningSettings = Field(default_factory=TuningSettings, description="compile settings")


class CompileSettings(SpecRecord):
    """Where artifacts are compiled and what one compile may take; it changes no artifact."""

    where: Literal["device", "cpu"] = Field(
        "device",
        description=(
            "device: on the claimed devices; cpu:"
            " on a node that you label for it, unproven on every runtime"
        ),
    )
    cpu: int | None = Field(
        None, ge=1, le=192, description="CPUs requested for a compile; null as a server's"
    )
    memory_gib: int | None = Field(
        None, ge=8, le=2048, description="memory for a compile, in GiB; null as a server's"
    )
    deadline_hours: int = Field(
        4, ge=1, le=24, description="most hours that the compiler may run, over all attempts"
    )
    attempts: int = Field(
        3, ge=1, le=10, description="most attempts, where the failure may pass by itself"
    )


class Variant(SpecRecord):
    """One server: a name and the speculation fields."""

    name: Name = Field(description="name of the Deployment and the Service")
    mode: Mode = Field(description="how tokens are decoded; none is plain decoding")
    draft: ModelId | None = Field(
        None, description="the draft model or head; null for none and medusa"
    )
    num_speculative_tokens: Window | None = Field(
        None,
        description=(
            "window k, null for none; a step commits at most k tokens on nxdi-v0, k + 1 on native"
        ),
    )
    method: str | None = Field(
        None, description="vLLM's `method`; leave it out: the runtime's own is rendered"
    )


class GoodputLimits(SpecRecord):
    """What a request must keep for its tokens to count; a limit that is null is none."""

    ttft_ms: float | None = Field(
        None, gt=0, le=600_000, description="most milliseconds to the first token"
    )
    tpot_ms: float | None = Field(
        None, gt=0, le=60_000, description="most milliseconds of a later token"
    )

    def list_limits(self) -> dict[str, float]:
        """Return the limits that are stated, by metric."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class QualityTask(SpecRecord):
    """A task that the servers of a run answer after its rounds."""

    name: TaskName = Field(
        description="its name: lm-eval's, or that of the folder with your items; sums is ours"
    )
    sha256: Digest | None = Field(
        None,
        description=(
            "of the task set, as `tandem artifacts stage-task` prints it;"
            " null: the 400 sums of ours"
        ),
    )
    items: int = Field(
        400,
        ge=1,
        le=100_000,
        description="most items asked; below 200 there is no word but no evidence",
    )
    chance: float = Field(0.0, ge=0, lt=1, description="share of the items that guessing has right")
    group: str | None = Field(
        None,
        min_length=1,
        description=(
            "field of lm-eval's documents that names an item's group;"
            " null: `group`, if they have it"
        ),
    )


class ReportSettings(SpecRecord):
    """What a verdict and its report show."""

    show_prompts: bool = Field(
        False,
        description=(
            "show prompts and answers of your own suites; those of post and real are always shown"
        ),
    )


class Sweep(SpecRecord):
    """Variants by product: every draft at every window."""

    prefix: Name = Field(description="start of each variant's name, followed by draft and window")
    mode: Mode = Field(description="mode of every swept variant")
    drafts: tuple[ModelId, ...] = Field(min_length=1, description="draft models")
    num_speculative_tokens: tuple[Window, ...] = Field(min_length=1, description="windows")

    def variants(self) -> tuple[Variant, ...]:
        """Return one variant per draft and window, in the order written."""
        return _multiply_sweep(self)


@cache
def _multiply_sweep(sweep: Sweep) -> tuple[Variant, ...]:
    # no check here: a rule says when a name is too long
    return tuple(
        Variant.model_construct(
            name=f"{sweep.prefix}-{model_slug(draft)}-k{window}",
            mode=sweep.mode,
            draft=draft,
            num_speculative_tokens=window,
        )
        for draft, window in product(sweep.drafts, sweep.num_speculative_tokens)
    )


class Experiment(SpecRecord):
    """What is compared; the file's name is its name."""

    name: Name = Field(description="the file's name")
    runtime: Label = Field(
        description="runtime of every variant, a file in tandem/declarations/data/runtimes"
    )
    target: ModelId = Field(description="the model served")
    accept_unproven: bool = Field(
        False, description="admit what no source shows to work, such as a new head"
    )
    max_prompt_tokens: Tokens = Field(
        description="longest prompt of any suite, in tokens of the target"
    )
    max_output_tokens: Tokens = Field(
        description="longest output of any suite, in tokens of the target"
    )
    serving: ServingSettings = Field(description="what all variants share")
    compile: CompileSettings = Field(
        default_factory=CompileSettings, description="where the artifacts are compiled"
    )
    variants: tuple[Variant, ...] = Field(min_length=1, description="what is compared")
    sweep: Sweep | None = Field(None, description="further variants, by draft and window")
    suites: tuple[DeclaredSuite, ...] = Field(
        min_length=1, description="prompt suites of a run: ours by name, your own by file"
    )
    concurrency: Loads = Field((), description="closed loops of a run; empty: the bench's own, 4")
    goodput: GoodputLimits | None = Field(
        None, description="limits of a good request; required for a sweep"
    )
    quality: tuple[QualityTask, ...] = Field(
        (), description="tasks by which a run compares the quality of the output"
    )
    report: ReportSettings = Field(
        default_factory=ReportSettings, description="what a verdict and its report show"
    )
    schedule: Literal["interleaved", "simultaneous"] = Field(
        "interleaved", description="one arm at a time in ABBA rounds, or all at once as in the post"
    )
    claims: Literal["none", "post"] = Field(
        "none", description="post: a run also answers the claims of the AWS post of April 2026"
    )

    def all_variants(self) -> tuple[Variant, ...]:
        """Return the written variants, then the swept ones."""
        return self.variants + (self.sweep.variants() if self.sweep else ())

    def list_suite_files(self) -> tuple[SuiteFile, ...]:
        """Return the suites that are files."""
        return tuple(suite for suite in self.suites if isinstance(suite, SuiteFile))

    def all_models(self) -> tuple[str, ...]:
        """Return the ids of the target and of every draft, each once, the target first."""
        drafts = (variant.draft for variant in self.all_variants() if variant.draft)
        return tuple(dict.fromkeys([self.target, *drafts]))
