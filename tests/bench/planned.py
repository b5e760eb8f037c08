"""Small suites and plans for the tests of the load."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from measured import arm, run_manifest

from tandem.bench.plan.request_plan import RunPlan, plan_blocks
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite import Suite, SuiteDefaults


def suite(classes: Mapping[str, int], **defaults: object) -> Suite:
    """A suite with so many prompts of each class."""
    prompts = tuple(
        Prompt(id=f"{class_}-{number}", class_=class_, prompt=f"say {class_} {number}")
        for class_, count in classes.items()
        for number in range(count)
    )
    return Suite(
        name="small",
        prompts=prompts,
        sha256="0" * 64,
        defaults=SuiteDefaults(**({"max_tokens": 8} | defaults)),
    )


def plan(
    arms: Sequence[str] = ("a", "b"),
    classes: Mapping[str, int] | None = None,
    *,
    rounds: int | None = 1,
    concurrency: Sequence[int] | None = (1,),
    **fields: object,
) -> RunPlan:
    """A plan over a small suite; concurrency 1 where nothing is said."""
    manifest = run_manifest(
        **({"arms": tuple(map(arm, arms)), "rounds": rounds or 0, "seed": 0} | fields)
    )
    return RunPlan(
        manifest=manifest,
        blocks=plan_blocks(manifest, [suite(classes or {"code": 4})], concurrency),
    )


def suite_file(
    folder: Path, prompts: Mapping[str, Sequence[str]], max_tokens: int | None = None
) -> Path:
    """A user's suite file: class to the texts of its prompts."""
    more = {} if max_tokens is None else {"max_tokens": max_tokens}
    lines = [
        json.dumps({"id": f"{class_}-{number}", "class": class_, "prompt": text} | more)
        for class_, texts in prompts.items()
        for number, text in enumerate(texts)
    ]
    path = folder / "own.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path
