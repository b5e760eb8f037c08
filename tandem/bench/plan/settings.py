"""The settings of a run, checked and complete.

Invariant: the settings are frozen and the same for every arm; no setting comes from a server.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from tandem.bench.load.host import read_host
from tandem.bench.plan.knee_search import GOODPUT_SHARE, ROUNDS
from tandem.bench.plan.request_plan import RunPlan, plan_blocks
from tandem.bench.plan.restart_options import RESTART_LIMIT_S
from tandem.bench.plan.run_options import RunOptions, parse_synthetic
from tandem.bench.plan.run_size import SIZES, RunSize
from tandem.bench.plan.schedule import FEWEST_ROUNDS
from tandem.bench.plan.server_access import ServerAccess
from tandem.bench.records.manifest import (
    SCHEMA,
    UNNAMED_METHOD,
    ManifestArm,
    PlanTotals,
    RunManifest,
    Speculation,
    SuiteEntry,
    Timeouts,
    read_clock,
    utc_now,
)
from tandem.bench.suites.file_options import FileOptions
from tandem.bench.suites.suite import BUILT_IN, Suite
from tandem.bench.suites.synthetic import SYNTHETIC_PROMPTS, SyntheticShape
from tandem.errors import InputError

FILE_OPTIONS = ("prompt_column", "class_field", "turns", "sample")
"""What a user says of a file of prompts."""

SAME_FIELDS = (
    "schedule",
    "seed",
    "api",
    "thinking",
    "temperature",
    "max_tokens",
    "starts",
    "repeats",
    "prompts_per_class",
    "duration_s",
    "price_usd_per_hour",
)
"""Options that the manifest has as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of one run.

    Args:
        manifest: of the run, without the facts of its servers.
        suites: of the run.
        concurrency: of the closed loops; None for each suite's own.
        warm_up: warm-up requests for each arm; None until stable.
        extras: to request from servers that offer them.
        access: key and headers of the arms that have some, by name; never recorded.
        restart: name of an arm to the shell command that restarts its server.
        restart_limit_s: longest time of a restart, in seconds.
        synthetic: size of the prompts that are made for the servers; None without such.
    """

    manifest: RunManifest
    suites: tuple[Suite, ...]
    concurrency: tuple[int, ...] | None = None
    warm_up: int | None = None
    extras: frozenset[str] = frozenset()
    access: Mapping[str, ServerAccess] = field(default_factory=dict)
    restart: Mapping[str, str] = field(default_factory=dict)
    restart_limit_s: float = RESTART_LIMIT_S
    synthetic: SyntheticShape | None = None

    def replace_suite(self, suite: Suite) -> RunSettings:
        """Return the settings with this suite in place of the one of the same name."""
        suites = [suite if draft.name == suite.name else draft for draft in self.suites]
        return replace(self, suites=tuple(suites))

    def list_suites(self) -> tuple[SuiteEntry, ...]:
        """Return what the manifest says of the suites."""
        return tuple(
            SuiteEntry(
                name=suite.name,
                sha256=suite.sha256,
                prompts=len(suite.prompts),
                classes=suite.classes,
                file_sha256=suite.file_sha256,
            )
            for suite in self.suites
        )

    def plan(self) -> RunPlan:
        """Return the plan of the run."""
        return RunPlan(
            manifest=self.manifest, blocks=plan_blocks(self.manifest, self.suites, self.concurrency)
        )


def complete_options(
    options: RunOptions,
    *,
    arms: Sequence[ManifestArm] = (),
    facts: Mapping[str, Any] | None = None,
    most_tokens: int | None = None,
    suites: Sequence[str | Suite] = (),
) -> RunSettings:
    """Return the settings of a run of a user's options.

    Args:
        options: of the user.
        arms: the servers, if more is known of them than the options say.
        facts: further fields of the manifest.
        most_tokens: the longest answer that the servers give, in tokens; None if unknown.
        suites: names, or suites that are read; they take the place of those of the options.

    Raises:
        InputError: a suite cannot be read.
    """
    size = SIZES[options.size]
    if options.sample is not None:  # the user's number stands before that of the size
        size = replace(size, prompts_per_class=None)
    source = None if options.llmperf_source is None else Path(options.llmperf_source)
    synthetic = _shape_synthetic(options)
    run_suites = size.load_suites(
        suites or [str(name) for name in options.suites],
        classes=options.classes,
        llmperf_source=source,
        options=_describe_files(options),
        synthetic=synthetic,
    )
    fields = {
        **(facts or {}),
        **{name: getattr(options, name) for name in SAME_FIELDS},
        "arms": complete_arms(
            tuple(arms) or list_arms(options.servers, options.models(), options.placement), options
        ),
        "rates_per_s": tuple(options.rate_per_s or ()),
        "rounds": ROUNDS if options.knee else _choose_rounds(options),
        "control_rounds": 0 if options.knee else options.control_rounds,
        "mixed": options.mixed or options.knee,
        "goodput_share": (options.goodput_share or GOODPUT_SHARE) if options.knee else None,
        "time_outs": Timeouts(**options.timeouts),
        "goodput": dict(options.goodput) or None,
    }
    concurrency = None if options.concurrency is None else tuple(options.concurrency)
    settings = build_settings(
        size, run_suites, fields, most_tokens=most_tokens, concurrency=concurrency
    )
    return replace(
        settings,
        warm_up=options.warm_up,
        extras=frozenset(options.record),
        access=options.list_access(),
        restart=options.restart_commands(),
        restart_limit_s=options.restart_limit_s,
        synthetic=synthetic,
    )


def _describe_files(options: RunOptions) -> FileOptions:
    """Return what the options say of the files of prompts.

    Raises:
        InputError: they say something, and there is no file.
    """
    given = [name for name in FILE_OPTIONS if getattr(options, name) is not None]
    has_file = any(str(name) not in BUILT_IN for name in options.suites)
    is_used = has_file or (options.synthetic is not None and given == ["sample"])
    if given and not is_used:
        flag = f"--{given[0].replace('_', '-')}"
        change = "name a file of prompts: --suite FILE"
        raise InputError(f"{flag} says something of a file, and --suite names none", change=change)
    return FileOptions(
        prompt_column=options.prompt_column,
        class_field=options.class_field,
        turns=options.turns,
        sample=options.sample,
        seed=options.seed,
    )


def _shape_synthetic(options: RunOptions) -> SyntheticShape | None:
    """Return the size and number of the prompts to make; None without `synthetic`."""
    if options.synthetic is None:
        return None
    input_tokens, output_tokens = parse_synthetic(options.synthetic)
    return SyntheticShape(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        count=options.sample or options.prompts_per_class or SYNTHETIC_PROMPTS,
        seed=options.seed,
    )


def complete_arms(arms: Sequence[ManifestArm], options: RunOptions) -> tuple[ManifestArm, ...]:
    """Return the arms with what the options say of each: requests, and speculation."""
    access = options.list_access()
    bodies = options.list_bodies()
    left_out = options.list_left_out()
    arms_with_requests = []
    for arm in arms:
        fields: dict[str, Any] = {
            "headers": tuple(access[arm.name].headers),
            "extra_body": bodies[arm.name],
            "left_out": left_out[arm.name],
        }
        if arm.name in options.speculates:
            count = options.speculates[arm.name]
            fields["speculation"] = Speculation(method=UNNAMED_METHOD, num_speculative_tokens=count)
        arms_with_requests.append(msgspec.structs.replace(arm, **fields))
    return tuple(arms_with_requests)


def _choose_rounds(options: RunOptions) -> int:
    """Return the number of rounds; 0 if time limits the run."""
    if options.duration_s is not None:
        return 0
    return options.rounds or max(FEWEST_ROUNDS, options.starts)


def list_arms(
    urls: Mapping[str, str], models: Mapping[str, str], placements: Mapping[str, str] | None = None
) -> tuple[ManifestArm, ...]:
    """Return the arms of servers by address.

    Args:
        urls: by name of the arm, the baseline first.
        models: of each arm.
        placements: of the arms that have one.
    """
    return tuple(
        ManifestArm(
            name=name,
            role="variant" if place else "baseline",
            url=url,
            model=models[name],
            placement=(placements or {}).get(name),
        )
        for place, (name, url) in enumerate(urls.items())
    )


def build_settings(
    size: RunSize,
    suites: tuple[Suite, ...],
    fields: Mapping[str, Any],
    *,
    most_tokens: int | None,
    concurrency: tuple[int, ...] | None = None,
) -> RunSettings:
    """Return the settings of a run; explicit values override the size.

    Args:
        size: values for everything that is not explicit.
        suites: of the run.
        fields: of the manifest, explicit values.
        most_tokens: the longest answer that the servers give, in tokens; None if unknown.
        concurrency: of the closed loops, if explicit.
    """
    size = size.fit_files(suites)
    longest = max(suite.longest_answer for suite in suites)
    limits = [
        limit for limit in (most_tokens, size.max_tokens) if limit is not None and limit < longest
    ]
    fields = {
        **fields,
        "max_tokens": fields.get("max_tokens") or min(limits, default=None),
        "prompts_per_class": fields.get("prompts_per_class") or size.prompts_per_class,
    }
    is_open = fields.get("rates_per_s") or fields.get("goodput_share")
    if concurrency is None and not is_open:
        concurrency = size.concurrency
    return RunSettings(manifest=draft_manifest(**fields), suites=suites, concurrency=concurrency)


def draft_manifest(**fields: Any) -> RunManifest:
    """Return the manifest of a new run, without the facts of plan and servers, which come later."""
    return RunManifest(
        schema=SCHEMA,
        simulated=None,
        version=importlib.metadata.version("tandem"),
        created_utc=utc_now(),
        clock=read_clock(),
        host=read_host(),
        suites=(),
        plan=PlanTotals(requests=None),
        **fields,
    )
