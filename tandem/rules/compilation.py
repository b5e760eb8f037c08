"""Rules on compiles: device or CPU, memory and disk, and deadlines."""

from __future__ import annotations

from collections.abc import Iterable

from tandem.declarations.disk import GIB, artifact_gib, compile_gib
from tandem.declarations.runtime import CpuCompile
from tandem.rules.contexts import ExperimentContext, HostingContext, look_up
from tandem.rules.placement import allocatable_limits
from tandem.rules.rule import DATA, RuleFinding, RuleList, join_values

TRANSFER_HOURS = 1  # besides the compile: node start, image pull, transfer of models and artifact
# of local disk: the kubelet keeps a tenth free (its default nodefs.available), images and logs take
# the rest
DISK_SHARE = 0.8
# No source gives a figure: Tandem's own reading of the Neuron SDK's guides, which compile such
# models on whole nodes. 10**9 parameters
LARGE_TARGET_B = 20
LARGE_COMPILE_GIB = 700
VALUE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}

_CPU = f"{DATA}/runtimes, spelling.compile.cpu"
_VOLUMES = "kubernetes.io/docs/concepts/storage/volumes, emptyDir"
_INSTANCES = "karpenter-provider-aws website/content/en/docs/reference/instance-types.md"
_DEADLINE = "kubernetes.io/docs/concepts/workloads/controllers/job, activeDeadlineSeconds"
_DISK = "tandem/declarations/disk.py; awslabs/amazon-eks-ami nodeadm/doc/api.md, localStorage"
RULES = RuleList()


def _cpu_compile(context: ExperimentContext) -> CpuCompile:
    """Return the runtime's compile without devices; unknown if the experiment compiles on them."""
    return look_up({"cpu": context.spelling.compile.cpu}, context.experiment.compile.where)


@RULES.refuse("compile-mode", _CPU, "2026-11-21")
def _find_unsupported_modes(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Every mode can be compiled on what compile.where names."""
    cpu_compile = _cpu_compile(context)
    variant = next(
        (arm.variant for arm in context.arms if arm.variant.mode not in cpu_compile.modes), None
    )
    if variant:
        got = f"cpu, with mode {variant.mode} of {variant.name} on runtime {context.runtime.name}"
        legal = f"device; cpu with modes {join_values(cpu_compile.modes)}"
        yield RuleFinding("compile.where", got, legal, "write where: device", cpu_compile.unproven)


@RULES.refuse_unproven(
    "compile-unproven",
    _CPU,
    "2026-11-21",
    accepted="No source shows a server on an artifact that was compiled without devices.",
)
def _find_unproven_cpu(context: ExperimentContext) -> Iterable[RuleFinding]:
    """Artifacts are compiled on devices, or the experiment says accept_unproven."""
    unproven = _cpu_compile(context).unproven
    got = f"cpu on runtime {context.runtime.name}: {unproven.value}"
    change = "write it, or accept_unproven: true"
    if context.experiment.accept_unproven:
        change = "compare one such artifact with one made on a device"
    yield RuleFinding("compile.where", got, "device", change, unproven)


@RULES.refuse("compile-shm", _VOLUMES, "2026-11-21")
def _find_memory_below_shm(context: ExperimentContext) -> Iterable[RuleFinding]:
    """A compile's memory is more than the shared memory, which counts against it."""
    memory = context.experiment.compile.memory_gib
    shm = context.experiment.serving.shm_gib
    if memory is not None and memory <= shm:
        got = f"{memory} with serving.shm_gib {shm}"
        legal = f"more than {shm}: /dev/shm counts against it"
        yield RuleFinding(
            "compile.memory_gib", got, legal, "write null, which is a server's memory"
        )


@RULES.warn("compile-memory", "Tandem's own reading: no published figure is known", "2026-11-22")
def _find_small_compile_memory(context: ExperimentContext) -> Iterable[RuleFinding]:
    """From {LARGE_TARGET_B} B parameters on, a target is compiled with {LARGE_COMPILE_GIB} GiB."""
    target = context.target
    own = context.experiment.compile.memory_gib
    memory = own or context.experiment.serving.memory_gib
    value_bytes = VALUE_BYTES.get(target.dtype.value or "", 2)
    parameters = (target.bytes.value or 0) // value_bytes / 10**9
    if memory < LARGE_COMPILE_GIB and parameters >= LARGE_TARGET_B:
        kind = "" if own else ", the memory of a server,"
        got = f"{memory}{kind} to compile a target of {parameters:.0f} B parameters"
        legal = (
            f"{LARGE_COMPILE_GIB} or more for targets from {LARGE_TARGET_B} B, if the node has it;"
            " no figure is published"
        )
        change = (
            f"write memory_gib: {LARGE_COMPILE_GIB},"
            " or read the peak of a first compile and write that"
        )
        yield RuleFinding("compile.memory_gib", got, legal, change)


def _compile_limits(context: HostingContext) -> dict[str, int]:
    """Return the most CPUs and memory (GiB) that all compiles of a node may request, by setting.

    A compile may take a whole node: it never runs next to a server.
    """
    if context.experiment.compile.where != "device":
        return {}
    return {
        name: limit // unit for name, (limit, unit) in allocatable_limits(context.instance).items()
    }


@RULES.refuse("compile-fits", _INSTANCES, "2026-11-21")
def _find_oversize_compiles(context: HostingContext) -> Iterable[RuleFinding]:
    """A compile's CPUs and memory fit what the DaemonSets leave of one node."""
    for name, limit in _compile_limits(context).items():
        value = getattr(context.experiment.compile, name)
        if value is not None and value > limit:
            legal = f"at most {limit} on a {context.instance_name}"
            change = f"write {name}: {limit} in the experiment, or null, which is a server's"
            yield context.find(
                f"compile.{name}", value, legal, change, context.instance.allocatable_cpu_m
            )


@RULES.warn("compiles-side-by-side", _DEADLINE, "2026-11-22")
def _find_waiting_compiles(context: HostingContext) -> Iterable[RuleFinding]:
    """The compiles that a node's devices admit at once fit its CPUs and memory together."""
    # a Job without room waits, and its deadline runs from its creation
    experiment = context.experiment
    devices = context.instance.devices.value or 0
    variants = [arm.variant for arm in context.arms]
    artifacts = {(arm.mode, arm.draft, arm.num_speculative_tokens) for arm in variants}
    count = min(len(artifacts), devices // experiment.serving.devices)
    for name, limit in _compile_limits(context).items():
        share = getattr(experiment.compile, name) or getattr(experiment.serving, name)
        if share <= limit < share * count:
            got = f"{share} of a node's {limit}, and its devices admit {count} compiles at once"
            legal = f"at most {limit // count}, or {limit // share} at once"
            change = (
                f"create only {limit // share} of the Jobs at once:"
                " the deadline of a Job runs from its creation"
            )
            yield context.find(
                f"compile.{name}", got, legal, change, context.instance.allocatable_cpu_m
            )


@RULES.refuse("disk-fits", _DISK, "2026-11-21")
def _find_disk_shortage(context: HostingContext) -> Iterable[RuleFinding]:
    """A compile, and the artifacts that servers copy, fit the node's local disk."""
    figure = context.instance.nvme_gb
    experiment = context.experiment
    serving = experiment.serving
    target, *drafts = context.list_pair()
    largest_drafts = sorted(drafts, key=lambda model: model.bytes.value or 0)[-1:]
    pair = (target, *largest_drafts)
    slots = (context.instance.devices.value or 0) // serving.devices
    arms = max(1, min(len(context.arms), slots))

    needed_gib = 0
    need = ""
    if experiment.compile.where == "device":
        need = "one compile"
        needed_gib = compile_gib(pair)
    if context.spelling.artifact_is_cache or serving.copy_artifact:
        copied_gib = artifact_gib(pair) * arms
        if copied_gib > needed_gib:
            need = f"{arms} copied artifacts"
            needed_gib = copied_gib

    if figure.value is None:
        return
    limit_gib = int(figure.value * 10**9 * DISK_SHARE) // GIB
    if needed_gib > limit_gib:
        got = f"{experiment.name!r}, where {need} may take {needed_gib} GiB of local disk"
        legal = f"at most {limit_gib} GiB on a {context.instance_name}"
        change = "name smaller models, or another instance type"
        yield RuleFinding(context.path, got, legal, change, figure)


@RULES.warn("compile-before-guard", "Tandem's own: guard.max_hours", "2026-11-21")
def _find_late_deadline(context: HostingContext) -> Iterable[RuleFinding]:
    """A compile's deadline plus {TRANSFER_HOURS} hour to move files is before the guard's stop."""
    settings = context.experiment.compile
    guard_hours = context.environment.guard.max_hours
    needed_hours = settings.deadline_hours + TRANSFER_HOURS
    most = max(guard_hours - TRANSFER_HOURS, 1)
    if settings.where == "device" and needed_hours > guard_hours:
        change = (
            f"write deadline_hours: {most} in the experiment, or guard.max_hours: {needed_hours}"
        )
        legal = f"at most {most} with guard.max_hours {guard_hours}"
        yield context.find("compile.deadline_hours", settings.deadline_hours, legal, change)
