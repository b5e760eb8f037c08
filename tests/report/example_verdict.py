"""A run and its verdict as a report has them: cells are the judge's, the rest is stated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from measured import arm, chunks, record, write_run

from tandem.bench.figures.request_table import RequestTable
from tandem.bench.figures.summary import summarize_table
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.records.manifest import SuiteEntry
from tandem.judge.schema import (
    BottleneckRound,
    CellVerdict,
    ClassAcceptance,
    ClassEquality,
    DivergenceExample,
    Headline,
    HistogramBin,
    OutputEquality,
    RatioEstimate,
    RunControls,
    ShareEstimate,
    Verdict,
)
from tandem.judge.verdict import JudgeOptions, judge_run

CLASSES = {"repeat": 3.1, "json": 1.72, "code": 1.46, "story": 1.01, "open": 0.97}
EVIL = """</script><script>alert(1)</script>'"><img src=x onerror=alert(2)>&amp;\u2028<!--\x1b[31m\u202e"""
METRICS = ("e2e_ms", "tpot_ms", "ttft_ms", "output_tokens_per_s")
BASE = "qwen-vllm"
VARIANT = "qwen-sd-vllm"
CONTROL = "qwen-vllm#2"


def run(
    folder: Path, *, prompts: int = 12, rounds: int = 4, classes: dict[str, float] = CLASSES
) -> Path:
    """A folder of baseline, variant and control in every class; the variant's true speed-ups are
    those of `classes`."""
    rng = np.random.default_rng(8)
    records = []
    at_s = 1000.0
    for round_ in range(rounds):
        for place, (class_, speed_up) in enumerate(classes.items()):
            for number in range(prompts):
                own = math.exp(np.random.default_rng([place, number]).normal(0, 0.12))
                for name, faster in ((BASE, 1.0), (VARIANT, speed_up), (CONTROL, 1.0)):
                    tokens = 48
                    ttft_s = 0.11 * math.exp(rng.normal(0, 0.05))
                    whole_s = ttft_s + own * 0.045 * (tokens - 1) / faster * math.exp(
                        rng.normal(0, 0.03)
                    )
                    steps = np.linspace(ttft_s, whole_s, max(3, round(tokens / max(1.0, faster))))
                    records.append(
                        record(
                            request_id=f"r-{len(records)}",
                            arm=name,
                            class_=class_,
                            prompt_id=f"{class_}-{number:02}",
                            suite="example",
                            round=round_,
                            slot=number,
                            concurrency=4,
                            start_s=at_s,
                            headers_s=ttft_s / 2,
                            end_s=float(whole_s),
                            completion_tokens=tokens,
                            text=f"{class_} {number}",
                            chunks=chunks(
                                *((float(step), "text") for step in steps),
                                (float(whole_s), "end", 0),
                            ),
                        )
                    )
                at_s += 9.0
    return write_run(
        folder,
        records,
        arms=(arm(BASE, role="baseline"), arm(VARIANT)),
        rounds=rounds,
        suites=(
            SuiteEntry(
                name="example",
                sha256="0" * 64,
                prompts=prompts * len(classes),
                classes=tuple(classes),
            ),
        ),
    )


def verdict(seen: RequestTable, **changes: Any) -> Verdict:
    """Everything that a verdict can hold: what is judged of these observations, and stated parts of
    all else."""
    variant = seen.variants[0] if seen.variants else VARIANT
    judged = nothing(seen, variants=(variant,))
    if seen.variants:
        run_summary = msgspec.structs.replace(
            summarize_table(seen),
            notes=("this machine was busy before the run began",),
            acceptance_notes=(),
        )
        judged = judge_run(seen, JudgeOptions(usd_per_hour=25.0), run_summary)
    controls = msgspec.structs.replace(
        judged.controls,
        marked=(BottleneckRound(round=99, sentence="the client took 96 % of a CPU"),),
        void=(),
    )
    fields = {
        "controls": controls,
        "equality": (equality(seen, variant),),
        "acceptance": acceptance(seen, variant),
    }
    cells = tuple(sorted(judged.cells, key=lambda cell: METRICS.index(cell.metric)))
    return msgspec.structs.replace(judged, **{**fields, "cells": cells, **changes})


def equality(seen: RequestTable, variant: str) -> OutputEquality:
    """Nearly the same, with two examples."""
    return OutputEquality(
        variant=variant,
        by="token ids",
        result="the same",
        sentence="58 of 60 pairs are identical; the baseline differs from itself as often.",
        identical=ShareEstimate(n=58, of=60, low=0.886, high=0.99),
        yardstick=ShareEstimate(n=59, of=60, low=0.91, high=0.999),
        classes=tuple(
            ClassEquality(
                class_=class_,
                identical=ShareEstimate(n=11 if place > 2 else 12, of=12, low=0.65, high=0.99),
                yardstick=ShareEstimate(n=12, of=12, low=0.75, high=1.0),
            )
            for place, class_ in enumerate(seen.classes)
        ),
        first_divergence=tuple(
            HistogramBin(first=first, last=last, n=n)
            for first, last, n in ((0, 8, 0), (8, 16, 1), (16, 32, 1))
        ),
        near_ties=ShareEstimate(n=2, of=2, low=0.2, high=1.0),
        lengths=RatioEstimate(value=1.0, low=0.99, high=1.01),
        garbage=ShareEstimate(n=0, of=60),
        garbage_of_baseline=ShareEstimate(n=0, of=60),
        examples=(
            DivergenceExample(
                class_="story",
                prompt_id="story-07",
                at=14,
                near_tie=True,
                baseline=(
                    "The lighthouse keeper counted the waves every night before the lamp was lit."
                ),
                measured=(
                    "The lighthouse keeper counted the ships every evening before the lamp was lit."
                ),
            ),
            DivergenceExample(
                class_="open",
                prompt_id="open-03",
                at=41,
                near_tie=None,
                baseline="not a destination but a direction:\n\n1. to learn,\n2. to give",
                measured=(
                    "not a destination but a direction:\n\n- to learn,\n- to give, and to rest"
                ),
            ),
        ),
    )


def acceptance(seen: RequestTable, variant: str) -> tuple[ClassAcceptance, ...]:
    """Counters for each class; the baseline has none."""
    rows = [
        ClassAcceptance(
            arm=variant,
            class_=class_,
            method="counters",
            acceptance_length=1 + 3.2 * 0.8**place,
            per_position=tuple((0.93 - 0.1 * place) ** position for position in range(1, 8)),
            target_steps_per_token=1 / (1 + 3.2 * 0.8**place),
        )
        for place, class_ in enumerate(("all", *seen.classes))
    ]
    plain = ClassAcceptance(
        arm=seen.baseline, class_="all", method="absent", sentence="the baseline does not speculate"
    )
    return (*rows, plain)


def nothing(seen: RequestTable, **changes: Any) -> Verdict:
    """A verdict on a run that nothing can be said of."""
    headline = Headline(
        variant=VARIANT,
        verdict="no evidence",
        finding="no evidence",
        evidence="one-start",
        output="not shown",
        sentence="There is no evidence: all requests failed.",
        metric="e2e_ms",
    )
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "run": "20261121T203720Z-1f2e3d4c",
        "folder": seen.folder.name,
        "created_utc": "2026-11-21T20:37:20+00:00",
        "baseline": seen.baseline,
        "variants": seen.variants or (VARIANT,),
        "requests": len(seen),
        "failed": int(seen.failed.sum()),
        "margin": 0.05,
        "headlines": (headline,),
        "cells": (),
        "controls": RunControls(),
    }
    return Verdict(**{"simulated": False, **fields, **changes})


def evil(value: Verdict) -> Verdict:
    """The same verdict with names and texts that try to break out of a page or a terminal."""

    def named(text: str) -> str:
        return text + EVIL

    return msgspec.structs.replace(
        value,
        cells=tuple(
            msgspec.structs.replace(cell, class_=named(cell.class_), why=EVIL)
            for cell in value.cells
        ),
        notes=(EVIL,),
        run=named(value.run),
        folder=EVIL,
        headlines=tuple(
            msgspec.structs.replace(headline, sentence=named(headline.sentence))
            for headline in value.headlines
        ),
        equality=tuple(
            msgspec.structs.replace(
                entry,
                examples=tuple(
                    msgspec.structs.replace(
                        example, baseline=named("a"), measured=named("b"), prompt_id=EVIL
                    )
                    for example in entry.examples
                ),
            )
            for entry in value.equality
        ),
        recompute=(EVIL,),
        arms=tuple(
            msgspec.structs.replace(element, arm=named(element.arm), url=named(element.url))
            for element in value.arms
        ),
    )


def classes(number: int) -> tuple[CellVerdict, ...]:
    """Cells of so many classes, four metrics each."""
    rng = np.random.default_rng(1)
    result = []
    for place in range(number):
        for name in METRICS:
            value = math.exp(float(rng.normal(0.2, 0.2)))
            word = "faster" if value > 1.2 else "slower" if value < 0.9 else "no evidence"
            result.append(
                CellVerdict(
                    variant=VARIANT,
                    class_=f"class-{place:05}",
                    load=LoadLevel(concurrency=4),
                    metric=name,
                    prompts=12,
                    rounds=2,
                    baseline=2000.0,
                    measured=2000 / value,
                    verdict=word,
                    why="made",
                    speed_up=RatioEstimate(value=value, low=value * 0.93, high=value * 1.07),
                )
            )
    return tuple(result)
