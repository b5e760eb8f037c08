"""Where an artifact is compiled, with what, and how long it may take."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from tandem.rules.room import DAEMONS_CPU_M, DAEMONS_MEMORY_MIB
from tandem.rules.rule import Finding, Rule, listed
from tandem.rules.subjects import Hosting, Trial
from tandem.spec.disk import GIB, artifact_gib, compile_gib
from tandem.spec.model import Model
from tandem.spec.runtime import CpuCompile

MOVING_HOURS = 1  # beside the compiler: a node starts, an image comes, models and artifact are moved
# of local disk: kubelet keeps a tenth free (its default nodefs.available), images and logs take the rest
DISK_SHARE = 0.8
# No source gives a figure: Tandem's own reading of the Neuron SDK's guides, which compile such models on whole nodes.
LARGE_PARAMETERS, LARGE_COMPILE_GIB = 20_000_000_000, 700
VALUE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def _without_devices(trial: Trial) -> CpuCompile | None:
    """Return how the runtime compiles without devices; None where nobody asks for it, or it is not rendered."""
    runtime = trial.runtime
    asked = trial.experiment.compile.where == "cpu"
    return runtime.spelling.compile.cpu if asked and runtime and runtime.spelling else None


def _cpu_modes(trial: Trial) -> Iterable[Finding]:
    how, runtime = _without_devices(trial), trial.runtime
    if how is None or runtime is None:
        return
    refused = [arm.variant for arm in trial.arms if arm.variant.mode not in how.modes]
    if refused:
        yield Finding(
            path="compile.where",
            got=f"cpu, with mode {refused[0].mode} of {refused[0].name} on runtime {runtime.name}",
            allowed=f"device; cpu with modes {listed(how.modes)}", change="write where: device",
            source=runtime.sources[how.unproven.source],
        )  # fmt: skip


def _cpu_unproven(trial: Trial, *, accepted: bool) -> Iterable[Finding]:
    how, runtime = _without_devices(trial), trial.runtime
    if how is not None and runtime is not None and trial.experiment.accept_unproven == accepted:
        yield Finding(
            path="compile.where", got=f"cpu on runtime {runtime.name}: {how.unproven.value}", allowed="device",
            change="hold one such artifact against one made on a device first"
            if accepted
            else "write where: device, or accept_unproven: true",
            source=runtime.sources[how.unproven.source],
        )  # fmt: skip


def _refuse_cpu(trial: Trial) -> Iterable[Finding]:
    return _cpu_unproven(trial, accepted=False)


def _warn_cpu(trial: Trial) -> Iterable[Finding]:
    return _cpu_unproven(trial, accepted=True)


def _memory_holds_shm(trial: Trial) -> Iterable[Finding]:
    memory, shm = trial.experiment.compile.memory_gib, trial.experiment.serving.shm_gib
    if memory is not None and memory <= shm:
        yield Finding(
            path="compile.memory_gib", got=f"{memory} with serving.shm_gib {shm}",
            allowed=f"more than {shm}: /dev/shm counts against it", change="write null, which is a server's memory",
        )  # fmt: skip


def _large_memory(trial: Trial) -> Iterable[Finding]:
    target, settings = trial.target, trial.experiment.compile
    memory = settings.memory_gib or trial.experiment.serving.memory_gib
    if target is None or target.bytes.value is None or memory >= LARGE_COMPILE_GIB:
        return
    parameters = target.bytes.value // VALUE_BYTES.get(target.dtype.value or "", 2)
    if parameters >= LARGE_PARAMETERS:
        yield Finding(
            path="compile.memory_gib",
            got=f"{memory} for a target of {parameters / 10**9:.0f} B parameters"
            + ("" if settings.memory_gib else ", a server's"),
            allowed=f"{LARGE_COMPILE_GIB} or more from {LARGE_PARAMETERS // 10**9} B, where the node has it; nobody "
            "has published what such a compile takes",
            change=f"write memory_gib: {LARGE_COMPILE_GIB}, or read the peak of a first compile and write that",
        )  # fmt: skip


def _compile_room(hosting: Hosting) -> dict[str, int]:
    """Return the most CPUs and memory (GiB) that all compiles of a node may ask for, by setting; empty if unknown.

    A compile may take a whole node: it never stands beside a server.
    """
    cpu, memory = hosting.instance.allocatable_cpu_m.value, hosting.instance.allocatable_memory_mib.value
    if hosting.trial.experiment.compile.where != "device" or cpu is None or memory is None:
        return {}
    return {"cpu": (cpu - DAEMONS_CPU_M) // 1000, "memory_gib": (memory - DAEMONS_MEMORY_MIB) // 1024}


def _fits(hosting: Hosting) -> Iterable[Finding]:
    for name, most in _compile_room(hosting).items():
        declared = getattr(hosting.trial.experiment.compile, name)
        if declared is not None and declared > most:
            yield Finding(
                path=hosting.path, got=hosting.said(f"compile.{name}", declared),
                allowed=f"at most {most} on a {hosting.environment.capacity.instance_type}",
                change=f"write {name}: {most} in the experiment, or null, which is a server's",
                source=hosting.catalogue.instances.sources[hosting.instance.allocatable_cpu_m.source],
            )  # fmt: skip


def _side_by_side(hosting: Hosting) -> Iterable[Finding]:
    """Hold the sum of the compiles that the devices admit at once against one node.

    A Job that finds no room waits, and its deadline runs from its making.
    """
    experiment, total = hosting.trial.experiment, hosting.instance.devices.value
    if not total:
        return
    artifacts = {
        (arm.variant.mode, arm.variant.draft, arm.variant.num_speculative_tokens) for arm in hosting.trial.arms
    }
    beside = min(len(artifacts), total // experiment.serving.devices)
    for name, most in _compile_room(hosting).items():
        share = getattr(experiment.compile, name) or getattr(experiment.serving, name)
        if share <= most < share * beside:
            yield Finding(
                path=hosting.path,
                got=hosting.said(f"compile.{name}", share) + f": {beside} compiles that the devices admit at once ask "
                f"for {share * beside} of a node's {most}; {beside - most // share} would wait while its deadline runs",
                allowed=f"at most {most // beside}, or no more than {most // share} compiles at once",
                change=f"create {most // share} of the Jobs, and the next when one has ended",
                source=hosting.catalogue.instances.sources[hosting.instance.allocatable_cpu_m.source],
            )  # fmt: skip


def _pair(trial: Trial) -> tuple[Model, ...]:
    """Return the target and the largest known draft; nothing where the target is unknown."""
    if trial.target is None:
        return ()
    drafts = sorted({draft.id: draft for _, draft in trial.drafted()}.values(), key=lambda each: each.bytes.value or 0)
    return (trial.target, *drafts[-1:])


def _disk(hosting: Hosting) -> Iterable[Finding]:
    trial, figure = hosting.trial, hosting.instance.nvme_gb
    pair, runtime, total = _pair(trial), trial.runtime, hosting.instance.devices.value
    if not pair or figure.value is None or not total or runtime is None or runtime.spelling is None:
        return
    serving = trial.experiment.serving
    copied = runtime.spelling.artifact_is_cache or serving.copy_artifact
    arms = max(1, min(len(trial.arms), total // serving.devices))
    needs = {
        "one compile": compile_gib(pair) if trial.experiment.compile.where == "device" else 0,
        f"{arms} copied artifacts": artifact_gib(pair) * arms if copied else 0,
    }
    most = int(figure.value * 10**9 * DISK_SHARE) // GIB
    what, needed = max(needs.items(), key=lambda need: need[1])
    if needed > most:
        yield Finding(
            path=hosting.path, got=f"{trial.experiment.name!r}, where {what} may take {needed} GiB of local disk",
            allowed=f"at most {most} GiB on a {hosting.environment.capacity.instance_type}",
            change="name smaller models, or another instance type",
            source=hosting.catalogue.instances.sources[figure.source],
        )  # fmt: skip


def _before_guard(hosting: Hosting) -> Iterable[Finding]:
    settings, most = hosting.trial.experiment.compile, hosting.environment.guard.max_hours
    needed = settings.deadline_hours + MOVING_HOURS
    if settings.where == "device" and needed > most:
        left = max(most - MOVING_HOURS, 1)
        yield Finding(
            path=hosting.path, got=hosting.said("compile.deadline_hours", settings.deadline_hours),
            allowed=f"at most {left} with guard.max_hours {most}",
            change=f"write deadline_hours: {left} in the experiment, or guard.max_hours: {needed}",
        )  # fmt: skip


def _sequence(trial: Trial) -> Iterable[Finding]:
    serving = trial.experiment.serving
    if not serving.tuning.sequence_parallel_enabled:
        return
    shortest = min(128, serving.max_model_len)  # the smallest length that the library compiles by itself
    lengths = serving.tuning.context_encoding_buckets or (shortest, serving.max_model_len)
    odd = [length for length in lengths if length % serving.tensor_parallel_size]
    if odd:
        yield Finding(
            path="serving.tuning.sequence_parallel_enabled",
            got=f"true with a prefill of {odd[0]} tokens over {serving.tensor_parallel_size} ranks",
            allowed="prefill lengths that the TP degree divides", change="write false, or other lengths",
        )  # fmt: skip


def _eagle(trial: Trial) -> Iterable[Finding]:
    heads = [arm for arm in trial.arms if arm.variant.mode == "eagle"]
    if heads and trial.experiment.serving.tuning.sequence_parallel_enabled:
        yield Finding(
            path="serving.tuning.sequence_parallel_enabled", got=f"true with mode eagle of {heads[0].variant.name}",
            allowed="false with mode eagle", change="write false, or leave it out",
        )  # fmt: skip


_NXDI = "aws-neuron/neuronx-distributed-inference tag v0.6.10598"

RULES: tuple[Rule[Any], ...] = (
    Rule(
        id="compile-mode", of=Trial, severity="refusal", find=_cpu_modes,
        sentence="every mode can be compiled where the experiment says",
        source="tandem/spec/data/runtimes, spelling.compile.cpu", date=date(2026, 11, 21),
    ),
    Rule(
        id="compile-unproven", of=Trial, severity="refusal", find=_refuse_cpu,
        sentence="artifacts are compiled on devices, or the experiment says accept_unproven",
        source="tandem/spec/data/runtimes, spelling.compile.cpu", date=date(2026, 11, 21),
    ),
    Rule(
        id="compile-unproven-accepted", of=Trial, severity="warning", find=_warn_cpu,
        sentence="no source shows a server on an artifact that was compiled without devices",
        source="tandem/spec/data/runtimes, spelling.compile.cpu", date=date(2026, 11, 21),
    ),
    Rule(
        id="compile-shm", of=Trial, severity="refusal", find=_memory_holds_shm,
        sentence="a compile's memory is more than the shared memory, which counts against it",
        source="kubernetes.io/docs/concepts/storage/volumes, emptyDir", date=date(2026, 11, 21),
    ),
    Rule(
        id="compile-fits", of=Hosting, severity="refusal", find=_fits,
        sentence="a compile's CPUs and memory are those of one node at most, beside the DaemonSets",
        source="karpenter-provider-aws website/content/en/docs/reference/instance-types.md", date=date(2026, 11, 21),
    ),
    Rule(
        id="compile-memory", of=Trial, severity="warning", find=_large_memory,
        sentence=f"from {LARGE_PARAMETERS // 10**9} B parameters on, a target is compiled with {LARGE_COMPILE_GIB} GiB",
        source="Tandem's own reading: no published figure is known", date=date(2026, 11, 22),
    ),
    Rule(
        id="compiles-side-by-side", of=Hosting, severity="warning", find=_side_by_side,
        sentence="the compiles that a node's devices admit at once fit its CPUs and memory together",
        source="kubernetes.io/docs/concepts/workloads/controllers/job, activeDeadlineSeconds", date=date(2026, 11, 22),
    ),
    Rule(
        id="disk-fits", of=Hosting, severity="refusal", find=_disk,
        sentence="a compile, and the artifacts that servers copy, fit the node's local disk",
        source="tandem/spec/disk.py; awslabs/amazon-eks-ami nodeadm/doc/api.md, localStorage", date=date(2026, 11, 21),
    ),
    Rule(
        id="compile-before-guard", of=Hosting, severity="warning", find=_before_guard,
        sentence=f"a compile's deadline, and {MOVING_HOURS} hour to move files, end before the guard stops the node",
        source="Tandem's own: guard.max_hours", date=date(2026, 11, 21),
    ),
    Rule(
        id="sequence-divides", of=Trial, severity="refusal", find=_sequence,
        sentence="with sequence parallelism the TP degree divides every prefill length that is compiled",
        source=f"{_NXDI} models/model_base.py, validate_sequence_parallel", date=date(2026, 11, 21),
    ),
    Rule(
        id="eagle-sequence", of=Trial, severity="refusal", find=_eagle,
        sentence="mode eagle leaves sequence parallelism off: the server's loader never gives it to the draft, the "
        "compiler's program would",
        source=f"{_NXDI} inference_demo.py; vllm 0.9.1 model_loader/neuronx_distributed.py", date=date(2026, 11, 21),
    ),
)  # fmt: skip
