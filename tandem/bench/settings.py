"""The settings of a run, checked and complete.

Invariant: the settings are frozen and the same for every arm; no setting comes from a server.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem.bench.host import read_host
from tandem.bench.manifest import SCHEMA, PlanTotals, RunManifest, read_clock, utc_now
from tandem.bench.plan import RunPlan, plan_blocks
from tandem.bench.run_size import RunSize
from tandem.bench.suites.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of one run.

    Args:
        manifest: of the run, without the facts of its servers.
        suites: of the run.
        concurrency: of the closed loops; None for each suite's own.
        warm_up: warm-up requests for each arm; None until stable.
        extras: to request from servers that offer them.
        api_key: sent to every arm, never recorded.
    """

    manifest: RunManifest
    suites: tuple[Suite, ...]
    concurrency: tuple[int, ...] | None = None
    warm_up: int | None = None
    extras: frozenset[str] = frozenset()
    api_key: str | None = field(default=None, repr=False)

    def plan(self) -> RunPlan:
        """Return the plan of the run."""
        return RunPlan(manifest=self.manifest, blocks=plan_blocks(self.manifest, self.suites, self.concurrency))


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
    longest = max(prompt.max_tokens or suite.defaults.max_tokens for suite in suites for prompt in suite.prompts)
    limits = [limit for limit in (most_tokens, size.max_tokens) if limit is not None and limit < longest]
    sizes = {"max_tokens": min(limits, default=None), "prompts_per_class": size.prompts_per_class}
    fields = {**fields, **{name: fields.get(name) or value for name, value in sizes.items()}}
    if concurrency is None and fields.get("rate_per_s") is None:
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
