"""What a run is asked to do: the settings that `tandem bench run` makes of its flags and of declared files.

Invariant: a flag stands before the size of the run, and the size before an experiment's suites.
"""

from __future__ import annotations

import os
from pathlib import Path

from tandem.bench.fault import BenchError
from tandem.bench.manifest import FILE, RunManifest, Timeouts, read_manifest
from tandem.bench.run_size import DEFAULT_SIZE, FULL_SIZE, QUICK_SIZE, RunSize
from tandem.bench.schedule import FEWEST_ROUNDS
from tandem.bench.settings import RunSettings
from tandem.bench.suites.suite import Suite, load_suite, narrow_suites
from tandem.cli.bench_arms import RunArms, assign_placements, build_flag_error, select_arms
from tandem.cli.bench_flags import RunFlags
from tandem.cli.selection import Selection
from tandem.shell_command import quote_command

DEFAULT_SUITES = ("real",)


def build_settings(selection: Selection, flags: RunFlags) -> RunSettings:
    """Return the settings of a run.

    Args:
        selection: the folders of declared files, for --env.
        flags: of the command line and of a manifest.

    Raises:
        BenchError: flags contradict each other, or a suite cannot be read.
        SpecError: a declared file is refused.
    """
    size, run_arms, previous_run = _choose_size(flags), select_arms(selection, flags), _read_previous_run(flags.resume)
    size = size.keep_manifest_size(previous_run) if previous_run else size
    suites = _load_suites(flags, size, run_arms)
    size = size.fit_files(suites)
    longest = max(prompt.max_tokens or suite.defaults.max_tokens for suite in suites for prompt in suite.prompts)
    limits = [limit for limit in (run_arms.most_tokens, size.max_tokens) if limit is not None and limit < longest]
    return RunSettings(
        arms=assign_placements(run_arms.arms, flags.placement, previous_run),
        environment=run_arms.environment,
        experiment=run_arms.experiment,
        instance_type=run_arms.instance_type,
        api_key=_read_api_key(flags.api_key_env),
        suites=suites,
        schedule=flags.schedule or run_arms.schedule or "interleaved",
        seed=flags.seed,
        api=flags.api,
        thinking=None if flags.thinking is None else flags.thinking == "on",
        temperature=flags.temperature,
        max_tokens=flags.max_tokens or min(limits, default=None),
        concurrency=flags.concurrency or (None if flags.rate else size.concurrency),
        rate_per_s=flags.rate,
        rounds=None if flags.duration is not None else flags.rounds or size.rounds,
        control_rounds=size.control_rounds if flags.control_rounds is None else flags.control_rounds,
        repeats=flags.repeats,
        prompts_per_class=flags.prompts_per_class or size.prompts_per_class,
        mixes_classes=flags.mixed,
        duration_s=flags.duration,
        timeouts=Timeouts(**(flags.timeouts or {})),
        warm_up=flags.warm_up,
        extras=flags.record,
        goodput=flags.goodput,
        price_usd_per_hour=flags.price,
        flags=flags.recorded or {},
    )


def _choose_size(flags: RunFlags) -> RunSize:
    if flags.quick and flags.full:
        raise build_flag_error("--full beside --quick", "one size of a run", "drop one of them")
    if flags.quick and flags.rounds is not None and flags.rounds < FEWEST_ROUNDS:
        allowed = f"at least {FEWEST_ROUNDS} rounds: fewer give no verdict"
        change = "drop --rounds, or drop --quick for figures alone"
        raise build_flag_error(f"--rounds {flags.rounds} beside --quick", allowed, change)
    return QUICK_SIZE if flags.quick else FULL_SIZE if flags.full else DEFAULT_SIZE


def _read_previous_run(folder: Path | None) -> RunManifest | None:
    """Return the manifest of the run that goes on; None of a new one, or where the folder holds no run."""
    return read_manifest(folder) if folder is not None and (folder / FILE).is_file() else None


def _load_suites(flags: RunFlags, size: RunSize, run_arms: RunArms) -> tuple[Suite, ...]:
    words = dict.fromkeys(flags.suite or size.select_names(run_arms.suites) or DEFAULT_SUITES)
    suites = tuple(load_suite(word, llmperf_source=flags.llmperf_source) for word in words)
    names = [suite.name for suite in suites]
    for name in (name for name in names if names.count(name) > 1):  # records could not tell them apart
        raise BenchError(f"two suites are named {name}", where="--suite", change="rename one of the files")
    return narrow_suites(suites, flags.classes) if flags.classes else size.narrow_suites(suites)


def _read_api_key(variable: str | None) -> str | None:
    key = os.environ.get(variable) if variable else None
    if variable and not key:
        change = quote_command("export", f"{variable}=KEY")
        raise BenchError(f"the variable {variable} is not set", where="--api-key-env", change=change)
    return key
