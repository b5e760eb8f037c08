"""Settings and servers of a run, made from the flags and declared files of `tandem bench run`.

Invariant: a flag stands before the size of the run, and the size before an experiment's suites.
What the declared files know of an arm goes into the manifest; the bench itself never reads them.
Arms come from files that have passed the rules, the baseline first. Who names servers by address
waits for no rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from tandem.bench.plan.restart_options import find_restart_fault
from tandem.bench.plan.run_options import NAME_PATTERN, RunOptions, ScheduleName
from tandem.bench.plan.run_size import SIZES
from tandem.bench.plan.settings import RunSettings, complete_options, list_arms
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.suites.suite import Suite
from tandem.cli.bench_flags import RunFlags
from tandem.cli.flags import choose_size
from tandem.cli.project_suites import read_project_suite
from tandem.cli.selection import Selection
from tandem.cli.server_flags import assign_words, merge_bodies, read_access, read_speculations
from tandem.declarations.suite_file import DeclaredSuite
from tandem.errors import InputError
from tandem.run.experiment_suites import select_suites


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArms:
    """What a run starts from.

    Args:
        arms: the baseline first.
        fields: what else the declared files say for the manifest; nothing for servers by address.
        suites: of the experiment.
        most_tokens: the longest answer the experiment's servers give; None where that is not known.
        goodput, concurrency: of the experiment; None and empty where it says none.
        schedule: of the experiment.
    """

    arms: tuple[ManifestArm, ...]
    fields: Mapping[str, str | bool] = field(default_factory=dict)
    suites: tuple[DeclaredSuite, ...] = ()
    most_tokens: int | None = None
    goodput: dict[str, float] | None = None
    concurrency: tuple[int, ...] = ()
    schedule: ScheduleName = "interleaved"


def build_settings(selection: Selection, flags: RunFlags) -> RunSettings:
    """Return the settings of a run.

    Args:
        selection: the folders of declared files, for --env.
        flags: of the command line and of a manifest.

    Raises:
        InputError: flags contradict each other, or a suite cannot be read.
        SpecError: a declared file is refused.
    """
    run_arms = select_arms(selection, flags)
    require_knee_flags(flags, run_arms.goodput)
    arms = assign_placements(run_arms.arms, flags.placement)
    facts = {**run_arms.fields, "flags": flags.recorded or {}}
    return complete_options(
        build_options(flags, run_arms),
        arms=arms,
        facts=facts,
        most_tokens=run_arms.most_tokens,
        suites=_read_hosted_suites(selection, flags, run_arms.suites),
    )


def _read_hosted_suites(
    selection: Selection, flags: RunFlags, declared: Sequence[DeclaredSuite]
) -> list[str | Suite]:
    """Return the experiment's suites for the size; none where flags name what is sent.

    Raises:
        InputError: a file cannot be read, or is not the one that the experiment names.
    """
    if flags.suite or flags.synthetic is not None:
        return []
    size = SIZES[choose_size(quick=flags.quick, full=flags.full)]
    return [
        suite if isinstance(suite, str) else read_project_suite(selection, suite)
        for suite in select_suites(size, declared)
    ]


def build_options(flags: RunFlags, run_arms: RunArms) -> RunOptions:
    """Return the options that the flags say, and where they say nothing, the experiment.

    Raises:
        InputError: a variable of a key or header is not set, or a NAME is no arm's.
    """
    size = choose_size(quick=flags.quick, full=flags.full)
    has_own_load = flags.rate is not None or flags.knee
    concurrency = flags.concurrency or (() if has_own_load else run_arms.concurrency)
    schedule = "interleaved" if flags.knee else run_arms.schedule
    if flags.ignore_eos and any(word.value == "max_tokens" for word in flags.leave_out):
        raise build_flag_error(
            "--leave-out max_tokens beside --ignore-eos", "one of them", "drop one of them"
        )
    urls = {arm.name: arm.url for arm in run_arms.arms}
    names = tuple(urls)
    access = read_access(urls, flags.api_key_env, flags.header)
    bodies = assign_words("--extra-body", flags.extra_body, names)
    speculations = read_speculations(flags.speculates, run_arms.arms)
    return RunOptions(
        servers=urls,
        model={arm.name: arm.model for arm in run_arms.arms if arm.model},
        size=size,
        suites=flags.suite,
        prompt_column=flags.prompt_column,
        class_field=flags.class_field,
        turns=flags.turns,
        sample=flags.sample,
        synthetic=flags.synthetic,
        classes=flags.classes,
        prompts_per_class=flags.prompts_per_class,
        max_tokens=flags.max_tokens,
        api=flags.api,
        thinking=None if flags.thinking is None else flags.thinking == "on",
        temperature=flags.temperature,
        record=flags.record,
        llmperf_source=flags.llmperf_source,
        concurrency=concurrency or None,
        rate_per_s=flags.rate,
        schedule=flags.schedule or schedule,
        rounds=flags.rounds,
        duration_s=flags.duration,
        control_rounds=flags.control_rounds,
        starts=flags.starts,
        restart=parse_restarts(flags, [arm.name for arm in run_arms.arms]),
        restart_limit_s=flags.restart_limit,
        repeats=flags.repeats,
        mixed=flags.mixed,
        seed=flags.seed,
        warm_up=flags.warm_up,
        timeouts=flags.timeouts or {},
        knee=flags.knee,
        goodput_share=flags.goodput_share,
        goodput=flags.goodput or run_arms.goodput or {},
        placement=dict(flags.placement),
        price_usd_per_hour=flags.price,
        api_key={name: entry.api_key for name, entry in access.items() if entry.api_key},
        headers={name: entry.headers for name, entry in access.items()},
        extra_body={name: merge_bodies(words) for name, words in bodies.items()},
        leave_out=assign_words("--leave-out", flags.leave_out, names),
        ignore_eos=flags.ignore_eos,
        speculates=speculations,
    )


def require_knee_flags(flags: RunFlags, goodput: Mapping[str, float] | None) -> None:
    """Refuse flags that a search for the knee lacks, or cannot go with.

    Args:
        flags: of the run.
        goodput: limits of the experiment, if any.

    Raises:
        InputError: a flag is missing, or contradicts --knee.
    """
    if not flags.knee:
        if flags.goodput_share is not None:
            raise build_flag_error("--goodput-share without --knee", "both", "add --knee")
        return
    if not flags.goodput and not goodput:
        change = "add --goodput METRIC:LIMIT, such as ttft_ms:500"
        raise build_flag_error("--knee without --goodput", "both", change)
    rivals = {
        "--publish": flags.publish is not None,
        "--repeats": flags.repeats != 1,
        "--restart": bool(flags.restart),
        "--starts": flags.starts != 1,
        "--schedule simultaneous": flags.schedule == "simultaneous",
    }
    for flag, is_given in rivals.items():
        if is_given:
            raise build_flag_error(f"{flag} beside --knee", "one of them", f"drop {flag}")


def parse_restarts(flags: RunFlags, names: Sequence[str]) -> dict[str, str]:
    """Return each arm's restart command: its own NAME=COMMAND, else the one for all.

    Raises:
        InputError: a command of no arm, two of one arm, or a number of starts that does not fit.
    """
    commands: dict[str, str] = {}  # the one for all has no name
    for word in flags.restart:
        name, command = _split_restart(word)
        if name in commands:
            whose = f"of {name}" if name else "for all arms"
            raise build_flag_error(f"two --restart {whose}", "one", "drop one of them")
        commands[name] = command
    common = commands.pop("", "")
    restarts = (dict.fromkeys(names, common) if common else {}) | commands
    fault = find_restart_fault(
        flags.starts, restarts, servers=names, rounds=flags.rounds, duration_s=flags.duration
    )
    if fault is not None:
        change = "give --restart and --rounds, and no more --starts than rounds"
        if flags.starts == 1:
            change = "add --starts 6, with which the verdict covers restarts"
        if fault.option == "restart":
            change = "name an arm; write a variable of the command as env NAME=VALUE COMMAND"
        raise build_flag_error(f"--{fault.option} {fault.value}", fault.allowed, change)
    return restarts


def _split_restart(word: str) -> tuple[str, str]:
    """Return the NAME, empty where none is given, and the COMMAND."""
    name, equals, command = word.partition("=")
    return (name, command) if equals and NAME_PATTERN.fullmatch(name) else ("", word)


def select_arms(selection: Selection, flags: RunFlags) -> RunArms:
    """Return the arms that the flags name.

    Raises:
        InputError: flags that contradict each other or lack something; the environment hosts no
            such experiment, or it has no such variant.
        SpecError: a declared file is refused.
    """
    if flags.env is None and (flags.experiment is None or flags.publish):
        return RunArms(arms=_build_address_arms(flags))
    address_flags = {
        "--baseline": flags.baseline,
        "--variant": flags.variant,
        "--model": flags.model,
    }
    address_flag = next((flag for flag, value in address_flags.items() if value), None)
    if address_flag is not None:
        allowed = "--env and --experiment, or servers by address"
        raise build_flag_error(f"{address_flag} beside --env", allowed, "drop one of them")
    if flags.env is None:
        change = "add --env NAME: where the experiment's servers are"
        raise build_flag_error("--experiment without --env", "both", change)
    return _select_hosted_arms(selection.narrow((flags.env,)), flags)


def assign_placements(
    arms: Sequence[ManifestArm], placements: Sequence[tuple[str, str]]
) -> tuple[ManifestArm, ...]:
    """Return the arms with their placements; of two of one arm the last counts.

    Raises:
        InputError: a placement of no arm.
    """
    placement_by_arm = dict(placements)
    names = [arm.name for arm in arms]
    for name in placement_by_arm.keys() - set(names):
        raise build_flag_error(
            f"--placement names no arm {name!r}", ", ".join(names), "name an arm"
        )
    return tuple(
        msgspec.structs.replace(arm, placement=placement_by_arm.get(arm.name)) for arm in arms
    )


def build_flag_error(problem: str, requirement: str, change: str) -> InputError:
    """Return a refusal of flags."""
    return InputError(f"{problem}; allowed: {requirement}", change=change)


def _build_address_arms(flags: RunFlags) -> tuple[ManifestArm, ...]:
    if not flags.baseline:
        raise build_flag_error(
            "no --baseline", "servers by address, or --env and --experiment", "add --baseline"
        )
    if flags.variants:
        raise build_flag_error(
            "--variants without --env", "variants of an experiment", "drop --variants"
        )
    servers = [flags.baseline, *flags.variant]
    default_names = [
        "baseline",
        "variant",
        *(f"variant-{number}" for number in range(2, len(servers))),
    ]
    names = [
        name or default_name
        for (name, _), default_name in zip(servers, default_names, strict=False)
    ]
    name = next((name for name in names if names.count(name) > 1), None)
    if name is not None:
        raise build_flag_error(
            f"two arms are named {name!r}", "each name once", "name them apart: NAME=URL"
        )
    urls = {name: url for name, (_, url) in zip(names, servers, strict=True)}
    return list_arms(urls, _parse_models(flags.model, names))


def _parse_models(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return each arm's model: its own NAME=M, else the one for all, else empty.

    Raises:
        InputError: a model of no arm, or two for all.
    """
    own = {}
    common = []
    for word in words:
        name, equals, model = word.partition("=")
        if equals:
            own[name] = model
        else:
            common.append(word)
    if len(common) > 1 or not all(own.values()) or not own.keys() <= set(names):
        allowed = f"one for all arms, and NAME=MODEL for each of {', '.join(names)} that differs"
        raise build_flag_error(f"--model {' '.join(words)}", allowed, "name one model of each arm")
    common_model = common[0] if common else ""
    return {name: own.get(name, common_model) for name in names}


def _select_hosted_arms(selection: Selection, flags: RunFlags) -> RunArms:
    """Return an experiment's variants: those of --variants, else without speculation first."""
    from tandem.cli.inputs import read_legal_inputs, require_variants  # noqa: PLC0415 - the rules
    from tandem.run.experiment_arms import build_arms  # noqa: PLC0415

    inputs = read_legal_inputs(selection)
    environment = inputs.environments()[0]
    hosted = inputs.list_experiments(environment)
    if flags.experiment is None and len(hosted) != 1:
        allowed = ", ".join(experiment.name for experiment in hosted)
        raise build_flag_error(
            "no --experiment", allowed, f"{environment.name} hosts several: name one"
        )
    experiment = hosted[0]
    if flags.experiment is not None:
        experiment = inputs.find_experiment(environment, flags.experiment)
    require_variants(experiment, flags.variants)
    arms = build_arms(environment, experiment, inputs.catalogue, flags.variants)
    fields: dict[str, str | bool] = {
        "environment": environment.name,
        "experiment": experiment.name,
        "instance_type": environment.capacity.instance_type,
        "show_prompts": experiment.report.show_prompts,
    }
    return RunArms(
        arms=arms,
        fields=fields,
        suites=experiment.suites,
        most_tokens=experiment.max_output_tokens,
        goodput=experiment.goodput.list_limits() if experiment.goodput else None,
        concurrency=experiment.concurrency,
        schedule=experiment.schedule,
    )
