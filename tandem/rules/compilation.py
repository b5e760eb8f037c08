"""Where an artifact is compiled, with what, and how long it may take."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.rules.contexts import ExperimentContext, HostingContext
from tandem.rules.node_resources import DAEMONS_CPU_M, DAEMONS_MEMORY_MIB
from tandem.rules.rule import RuleFinding, RuleList, join_values
from tandem.spec.disk import GIB, artifact_gib, compile_gib
from tandem.spec.model import ModelConfig
from tandem.spec.runtime import CpuCompile

TRANSFER_HOURS = 1  # beside the compiler: a node starts, an image comes, models and artifact are moved
# of local disk: kubelet keeps a tenth free (its default nodefs.available), images and logs take the rest
DISK_SHARE = 0.8
# No source gives a figure: Tandem's own reading of the Neuron SDK's guides, which compile such models on whole nodes.
LARGE_PARAMETERS, LARGE_COMPILE_GIB = 20_000_000_000, 700
VALUE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

_NXDI = "aws-neuron/neuronx-distributed-inference tag v0.6.10598"
RULES = RuleList()


def _cpu_compile(context: ExperimentContext) -> CpuCompile | None:
    """Return how the runtime compiles without devices; None where nobody asks for it, or it is not rendered."""
    runtime = context.runtime
    is_cpu = context.experiment.compile.where == "cpu"
    return runtime.spelling.compile.cpu if is_cpu and runtime and runtime.spelling else None


@RULES.refuse("compile-mode", "tandem/spec/data/runtimes, spelling.compile.cpu", "2026-11-21")
def _find_unsupported_modes(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every mode can be compiled where the experiment says."""
    cpu_compile, runtime = _cpu_compile(context), context.runtime
    if cpu_compile is None or runtime is None:
        return
    unsupported_variants = [arm.variant for arm in context.arms if arm.variant.mode not in cpu_compile.modes]
    if unsupported_variants:
        yield RuleFinding(
            path="compile.where",
            got=f"cpu, with mode {unsupported_variants[0].mode} of {unsupported_variants[0].name} on runtime "
            f"{runtime.name}",
            allowed=f"device; cpu with modes {join_values(cpu_compile.modes)}",
            change="write where: device",
            source=runtime.sources[cpu_compile.unproven.source],
        )


def _find_unproven_cpu(context: ExperimentContext, *, accepts_unproven: bool) -> Iterable[RuleFinding]:
    cpu_compile, runtime = _cpu_compile(context), context.runtime
    if cpu_compile is not None and runtime is not None and context.experiment.accept_unproven == accepts_unproven:
        yield RuleFinding(
            path="compile.where", got=f"cpu on runtime {runtime.name}: {cpu_compile.unproven.value}", allowed="device",
            change="hold one such artifact against one made on a device first"
            if accepts_unproven
            else "write where: device, or accept_unproven: true",
            source=runtime.sources[cpu_compile.unproven.source],
        )  # fmt: skip


@RULES.refuse("compile-unproven", "tandem/spec/data/runtimes, spelling.compile.cpu", "2026-11-21")
def _refuse_cpu(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Artifacts are compiled on devices, or the experiment says accept_unproven."""
    return _find_unproven_cpu(context, accepts_unproven=False)


@RULES.warn("compile-unproven-accepted", "tandem/spec/data/runtimes, spelling.compile.cpu", "2026-11-21")
def _warn_cpu(context: ExperimentContext) -> Iterable[RuleFinding]:
    """No source shows a server on an artifact that was compiled without devices."""
    return _find_unproven_cpu(context, accepts_unproven=True)


@RULES.refuse("compile-shm", "kubernetes.io/docs/concepts/storage/volumes, emptyDir", "2026-11-21")
def _find_memory_below_shm(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A compile's memory is more than the shared memory, which counts against it."""
    memory, shm = context.experiment.compile.memory_gib, context.experiment.serving.shm_gib
    if memory is not None and memory <= shm:
        yield RuleFinding(
            path="compile.memory_gib", got=f"{memory} with serving.shm_gib {shm}",
            allowed=f"more than {shm}: /dev/shm counts against it", change="write null, which is a server's memory",
        )  # fmt: skip


@RULES.warn(
    "compile-memory",
    "Tandem's own reading: no published figure is known",
    "2026-11-22",
    sentence=f"From {LARGE_PARAMETERS // 10**9} B parameters on, a target is compiled with {LARGE_COMPILE_GIB} GiB.",
)
def _find_small_compile_memory(context: ExperimentContext) -> Iterable[RuleFinding]:
    target, settings = context.target, context.experiment.compile
    memory = settings.memory_gib or context.experiment.serving.memory_gib
    if target is None or target.bytes.value is None or memory >= LARGE_COMPILE_GIB:
        return
    parameters = target.bytes.value // VALUE_BYTES.get(target.dtype.value or "", 2)
    if parameters >= LARGE_PARAMETERS:
        yield RuleFinding(
            path="compile.memory_gib",
            got=f"{memory} for a target of {parameters / 10**9:.0f} B parameters"
            + ("" if settings.memory_gib else ", a server's"),
            allowed=f"{LARGE_COMPILE_GIB} or more from {LARGE_PARAMETERS // 10**9} B, where the node has it; nobody "
            "has published what such a compile takes",
            change=f"write memory_gib: {LARGE_COMPILE_GIB}, or read the peak of a first compile and write that",
        )  # fmt: skip


def _compile_limits(context: HostingContext) -> dict[str, int]:
    """Return the most CPUs and memory (GiB) that all compiles of a node may ask for, by setting; empty if unknown.

    A compile may take a whole node: it never stands beside a server.
    """
    cpu, memory = context.instance.allocatable_cpu_m.value, context.instance.allocatable_memory_mib.value
    if context.experiment_context.experiment.compile.where != "device" or cpu is None or memory is None:
        return {}
    return {"cpu": (cpu - DAEMONS_CPU_M) // 1000, "memory_gib": (memory - DAEMONS_MEMORY_MIB) // 1024}


@RULES.refuse(
    "compile-fits", "karpenter-provider-aws website/content/en/docs/reference/instance-types.md", "2026-11-21"
)
def _find_oversize_compiles(context: HostingContext) -> Iterable[RuleFinding]:
    """A compile's CPUs and memory are those of one node at most, beside the DaemonSets."""
    for name, limit in _compile_limits(context).items():
        value = getattr(context.experiment_context.experiment.compile, name)
        if value is not None and value > limit:
            yield RuleFinding(
                path=context.path, got=context.format_value(f"compile.{name}", value),
                allowed=f"at most {limit} on a {context.environment.capacity.instance_type}",
                change=f"write {name}: {limit} in the experiment, or null, which is a server's",
                source=context.catalogue.instances.sources[context.instance.allocatable_cpu_m.source],
            )  # fmt: skip


@RULES.warn(
    "compiles-side-by-side",
    "kubernetes.io/docs/concepts/workloads/controllers/job, activeDeadlineSeconds",
    "2026-11-22",
)
def _find_waiting_compiles(context: HostingContext) -> Iterable[RuleFinding]:
    """The compiles that a node's devices admit at once fit its CPUs and memory together."""
    # a Job that finds no room waits, and its deadline runs from its making
    experiment, total = context.experiment_context.experiment, context.instance.devices.value
    if not total:
        return
    artifacts = {
        (arm.variant.mode, arm.variant.draft, arm.variant.num_speculative_tokens)
        for arm in context.experiment_context.arms
    }
    parallel_compiles = min(len(artifacts), total // experiment.serving.devices)
    for name, limit in _compile_limits(context).items():
        share = getattr(experiment.compile, name) or getattr(experiment.serving, name)
        if share <= limit < share * parallel_compiles:
            yield RuleFinding(
                path=context.path,
                got=context.format_value(f"compile.{name}", share)
                + f": {parallel_compiles} compiles that the devices admit at once ask "
                f"for {share * parallel_compiles} of a node's {limit}; {parallel_compiles - limit // share} "
                "would wait while its deadline runs",
                allowed=f"at most {limit // parallel_compiles}, or no more than {limit // share} compiles at once",
                change=f"create {limit // share} of the Jobs, and the next when one has ended",
                source=context.catalogue.instances.sources[context.instance.allocatable_cpu_m.source],
            )


def _target_and_draft(context: ExperimentContext) -> tuple[ModelConfig, ...]:
    """Return the target and the largest known draft; nothing where the target is unknown."""
    if context.target is None:
        return ()
    drafts = sorted(
        {draft.id: draft for _, draft in context.draft_arms()}.values(), key=lambda model: model.bytes.value or 0
    )
    return (context.target, *drafts[-1:])


@RULES.refuse("disk-fits", "tandem/spec/disk.py; awslabs/amazon-eks-ami nodeadm/doc/api.md, localStorage", "2026-11-21")
def _find_disk_shortage(context: HostingContext) -> Iterable[RuleFinding]:
    """A compile, and the artifacts that servers copy, fit the node's local disk."""
    experiment_context, figure = context.experiment_context, context.instance.nvme_gb
    pair, runtime, total = (
        _target_and_draft(experiment_context),
        experiment_context.runtime,
        context.instance.devices.value,
    )
    if not pair or figure.value is None or not total or runtime is None or runtime.spelling is None:
        return
    serving = experiment_context.experiment.serving
    has_local_copy = runtime.spelling.artifact_is_cache or serving.copy_artifact
    arms = max(1, min(len(experiment_context.arms), total // serving.devices))
    needs_gib = {
        "one compile": compile_gib(pair) if experiment_context.experiment.compile.where == "device" else 0,
        f"{arms} copied artifacts": artifact_gib(pair) * arms if has_local_copy else 0,
    }
    limit_gib = int(figure.value * 10**9 * DISK_SHARE) // GIB
    need_name, needed_gib = max(needs_gib.items(), key=lambda need: need[1])
    if needed_gib > limit_gib:
        yield RuleFinding(
            path=context.path,
            got=f"{experiment_context.experiment.name!r}, where {need_name} may take {needed_gib} GiB of local disk",
            allowed=f"at most {limit_gib} GiB on a {context.environment.capacity.instance_type}",
            change="name smaller models, or another instance type",
            source=context.catalogue.instances.sources[figure.source],
        )


@RULES.warn(
    "compile-before-guard",
    "Tandem's own: guard.max_hours",
    "2026-11-21",
    sentence=f"A compile's deadline, and {TRANSFER_HOURS} hour to move files, end before the guard stops the node.",
)
def _find_late_deadline(context: HostingContext) -> Iterable[RuleFinding]:
    settings, guard_hours = context.experiment_context.experiment.compile, context.environment.guard.max_hours
    needed_hours = settings.deadline_hours + TRANSFER_HOURS
    if settings.where == "device" and needed_hours > guard_hours:
        max_deadline_hours = max(guard_hours - TRANSFER_HOURS, 1)
        yield RuleFinding(
            path=context.path, got=context.format_value("compile.deadline_hours", settings.deadline_hours),
            allowed=f"at most {max_deadline_hours} with guard.max_hours {guard_hours}",
            change=f"write deadline_hours: {max_deadline_hours} in the experiment, or guard.max_hours: {needed_hours}",
        )  # fmt: skip


@RULES.refuse("sequence-divides", f"{_NXDI} models/model_base.py, validate_sequence_parallel", "2026-11-21")
def _find_indivisible_prefill(context: ExperimentContext) -> Iterable[RuleFinding]:
    """With sequence parallelism the TP degree divides every prefill length that is compiled."""
    serving = context.experiment.serving
    if not serving.tuning.sequence_parallel_enabled:
        return
    shortest = min(128, serving.max_model_len)  # the smallest length that the library compiles by itself
    lengths = serving.tuning.context_encoding_buckets or (shortest, serving.max_model_len)
    indivisible_lengths = [length for length in lengths if length % serving.tensor_parallel_size]
    if indivisible_lengths:
        yield RuleFinding(
            path="serving.tuning.sequence_parallel_enabled",
            got=f"true with a prefill of {indivisible_lengths[0]} tokens over {serving.tensor_parallel_size} ranks",
            allowed="prefill lengths that the TP degree divides", change="write false, or other lengths",
        )  # fmt: skip


@RULES.refuse(
    "eagle-sequence", f"{_NXDI} inference_demo.py; vllm 0.9.1 model_loader/neuronx_distributed.py", "2026-11-21"
)
def _find_eagle_sequence_parallel(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Mode eagle leaves sequence parallelism off: the server never gives it to the draft, the compiler would."""
    heads = [arm for arm in context.arms if arm.variant.mode == "eagle"]
    if heads and context.experiment.serving.tuning.sequence_parallel_enabled:
        yield RuleFinding(
            path="serving.tuning.sequence_parallel_enabled", got=f"true with mode eagle of {heads[0].variant.name}",
            allowed="false with mode eagle", change="write false, or leave it out",
        )  # fmt: skip
