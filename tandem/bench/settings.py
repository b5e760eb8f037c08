"""What a run was asked to do, checked and complete.

Invariant: frozen and the same for every arm; nothing here came from a server.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tandem.bench.host import read_host
from tandem.bench.manifest import PlanTotals, RunManifest, read_clock, utc_now
from tandem.bench.plan import RunPlan, plan_blocks
from tandem.bench.run_size import RunSize
from tandem.bench.suites.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """One run.

    Args:
        manifest: all that is recorded of it, as far as it is known before a server is asked.
        suites: what is asked.
        concurrency: closed loops; None for what each suite states.
        warm_up: requests for each arm; None until stable.
        extras: extras that are asked of servers that offer them.
        api_key: sent to every arm, never recorded.
    """

    manifest: RunManifest
    suites: tuple[Suite, ...]
    concurrency: tuple[int, ...] | None = None
    warm_up: int | None = None
    extras: frozenset[str] = frozenset()
    api_key: str | None = field(default=None, repr=False)

    def plan(self) -> RunPlan:
        """Return who is asked what, in order."""
        return RunPlan(manifest=self.manifest, blocks=plan_blocks(self.manifest, self.suites, self.concurrency))


def build_settings(
    size: RunSize,
    suites: tuple[Suite, ...],
    fields: Mapping[str, Any],
    *,
    most_tokens: int | None,
    concurrency: tuple[int, ...] | None = None,
) -> RunSettings:
    """Return the settings of a run; what is stated stands before its size.

    Args:
        size: how much is asked where nothing is stated.
        suites: what is asked.
        fields: of the manifest, as stated.
        most_tokens: the longest answer that the servers give; None where that is not known.
        concurrency: closed loops, as stated.
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
    """Return the manifest of a run that is planned here and now; what depends on plan and servers is added later."""
    return RunManifest(
        version=importlib.metadata.version("tandem"),
        created_utc=utc_now(),
        clock=read_clock(),
        host=read_host(),
        suites=(),
        plan=PlanTotals(requests=None),
        **fields,
    )
