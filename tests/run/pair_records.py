"""Records of a pair whose candidate has a known fault: what its servers would stream, written and
judged as a run's.

Times come from `benchmarks/world_records.py`, which shares no code with the product. Texts are
words of ours, or what a broken server writes; the bench's own content check reads them. The judge
reads the folder, as its Job does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import measured
import msgspec
import numpy as np
from world_records import CONCURRENCY, QUICK_SHAPE, RunShape, World, simulate_run

from tandem.bench.figures.request_table import RequestTable, read_request_table
from tandem.bench.records.manifest import Speculation
from tandem.bench.records.quality_rows import QualityRow, write_quality
from tandem.bench.records.record import Chunk, RequestRecord
from tandem.bench.suites import suite
from tandem.bench.suites.content import check_content
from tandem.bench.suites.prompt import Prompt
from tandem.judge.sweep_record import PairEvidence, PairVerdict
from tandem.judge.verdict import judge_run
from tandem.run.judge_job import extract_evidence, extract_verdict

BURST = 3  # tokens of a step of the candidate
KEPT_SHARE = 0.8  # of each answer that a candidate cuts
SLOWEST_SHARE = 0.1
SENTENCE = "the river turns north at the old mill and leaves a quiet pool where boats wait for rain"
OTHER_SENTENCE = (
    "a path climbs west from the new bridge and ends in a small field where sheep rest at noon"
)
GARBAGE = "\ufffd\ufffd ;;#{ĠĠ \ufffd== ĊĠ}} \ufffd~~ " * 6
PROMPTS = {prompt.id: prompt for prompt in suite.load_suite("real").prompts}

Text = Literal["the same", "another", "garbage"]


@dataclass(frozen=True, kw_only=True)
class PairFault:
    """What is wrong with a candidate, or with both servers of its pair.

    Args:
        world: of the times.
        text: of the candidate. plain_text: of plain decoding.
        is_cut: whether the candidate ends each answer early.
        drops_slowest: whether the candidate's slowest requests fail.
        empty_class: of prompts, whose answers by the candidate are empty; an empty text for none.
        counts_tokens: whether the candidate's server says how many tokens an answer has.
        rounds: that are measured.
        items: of a task that both answer, plain decoding always right; 0 for no task.
        wrong_every: the candidate answers every so many-th item wrong; 0 for none.
    """

    world: World
    text: Text = "the same"
    plain_text: Text = "the same"
    is_cut: bool = False
    drops_slowest: bool = False
    empty_class: str = ""
    counts_tokens: bool = True
    rounds: int = QUICK_SHAPE.rounds
    items: int = 0
    wrong_every: int = 0


def build_world(name: str, true_speed_up: float, **knobs: float) -> World:
    """Return a world with the noise of real servers."""
    noise = {"prompt_spread": 0.05, "own_noise": 0.02, "own_noise_s": 20.0}
    return World(name=name, true_speed_up=true_speed_up, **(noise | knobs))


GOOD = PairFault(world=build_world("good", 1.4))
OTHER = PairFault(world=build_world("another text", 1.8), text="another")
FAULTS = {
    "garbage": PairFault(world=build_world("garbage", 2.3), text="garbage"),
    "both garbage": PairFault(
        world=build_world("both garbage", 2.3), text="garbage", plain_text="garbage"
    ),
    "cut": PairFault(world=build_world("cut", 1.8), is_cut=True),
    "another text": OTHER,
    "slowest fail": PairFault(world=build_world("slowest fail", 1.8), drops_slowest=True),
    "some slow": PairFault(world=build_world("some slow", 1.2, slow_share=0.15, slow_times=4.0)),
    "one round": PairFault(world=build_world("one round", 1.0), rounds=1),
}


def judge_records(
    folder: Path, fault: PairFault, seed: int, arms: tuple[str, str], shape: RunShape = QUICK_SHAPE
) -> tuple[PairVerdict | None, PairEvidence | None]:
    """Write the records of a pair and judge them; return what the judge's Job stores for a sweep.

    Args:
        folder: a new one.
        fault: of the candidate.
        seed: of the times.
        arms: names of plain decoding and of the candidate.
        shape: of the run, but for its rounds.
    """
    table = simulate_run(fault.world, seed, replace(shape, rounds=fault.rounds))
    write_records(folder, table, fault, arms)
    write_quality(folder, list(answer_items(fault, arms)))
    verdict = judge_run(read_request_table(folder))
    return extract_verdict(verdict), extract_evidence(verdict)


def answer_items(fault: PairFault, arms: tuple[str, str]) -> Iterator[QualityRow]:
    """Yield the answers of both servers to each item of the task."""
    for number in range(fault.items):
        is_wrong = bool(fault.wrong_every) and number % fault.wrong_every == 0
        yield QualityRow(task="sums", item=f"sum-{number}", arm=arms[0], right=True)
        yield QualityRow(task="sums", item=f"sum-{number}", arm=arms[1], right=not is_wrong)


def write_records(
    folder: Path, table: RequestTable, fault: PairFault, arms: tuple[str, str]
) -> None:
    """Write a run's folder: the times of a table, and the texts of servers with a fault."""
    is_candidate = table.arm == 1
    e2e_ms = table.figures["e2e_ms"]
    slow_ms = np.quantile(e2e_ms[is_candidate], 1 - SLOWEST_SHARE)
    records = []
    for row in range(len(table)):
        record = build_record(table, row, fault, arms)
        if fault.drops_slowest and is_candidate[row] and e2e_ms[row] > slow_ms:
            record = msgspec.structs.replace(
                record,
                error="whole_timeout",
                content=None,
                finish_reason=None,
                completion_tokens=None,
            )
        records.append(record)

    methods = (Speculation(method=None), Speculation(method="fused", num_speculative_tokens=7))
    changes = {
        name: getattr(table.run, name)
        for name in ("suites", "rounds", "control_rounds", "plan", "warm_up")
    }
    changes["arms"] = tuple(
        msgspec.structs.replace(arm, name=name, speculation=method, simulated=False)
        for arm, name, method in zip(table.run.arms, arms, methods, strict=True)
    )
    changes["warm_up"] = dict(zip(arms, changes["warm_up"].values(), strict=True))
    measured.write_run(folder, records, **changes)


def build_record(
    table: RequestTable, row: int, fault: PairFault, arms: tuple[str, str]
) -> RequestRecord:
    """Return the record of one request."""
    is_candidate = table.arm[row] == 1
    name = (*arms, f"{arms[0]}#2")[table.arm[row]]
    key = table.prompts[table.prompt[row]]
    first_s = float(table.figures["ttft_ms"][row]) / 1e3
    end_s = float(table.figures["e2e_ms"][row]) / 1e3
    tokens = int(table.tokens[row])
    if is_candidate and fault.is_cut:
        token_count = max(2, int(KEPT_SHARE * tokens))
        end_s = first_s + (end_s - first_s) * (token_count - 1) / (tokens - 1)
        tokens = token_count

    prompt = PROMPTS[key.prompt_id]
    text = write_text(
        prompt, int(table.tokens[row]), fault.text if is_candidate else fault.plain_text
    )
    text = text[: int(KEPT_SHARE * len(text))] if is_candidate and fault.is_cut else text
    class_name = table.classes[table.class_[row]]
    text = "" if is_candidate and fault.empty_class == class_name else text
    return measured.record(
        request_id=f"{name}-{table.round[row]}-{table.slot[row]}-{key.prompt_id}",
        arm=name,
        class_=class_name,
        suite=key.suite,
        prompt_id=key.prompt_id,
        round=int(table.round[row]),
        slot=int(table.slot[row]),
        concurrency=CONCURRENCY,
        start_s=float(table.start_s[row]),
        headers_s=first_s / 2,
        end_s=end_s,
        completion_tokens=tokens if fault.counts_tokens or not is_candidate else None,
        text=text,
        start=f"{arms[table.start[row] % 2]}@0",
        content=check_content(prompt, text, "stop"),
        chunks=tuple(stream_chunks(first_s, end_s, tokens, BURST if is_candidate else 1)),
    )


def stream_chunks(first_s: float, end_s: float, tokens: int, burst: int) -> Iterator[Chunk]:
    """Yield the chunks of an answer: one token first, then so many a step, evenly in time."""
    yield Chunk(first_s, "text", 1)
    for count_before in range(1, tokens, burst):
        count = min(burst, tokens - count_before)
        yield Chunk(
            first_s + (end_s - first_s) * (count_before + count - 1) / (tokens - 1), "text", count
        )
    yield Chunk(end_s, "end", 0)


def write_text(prompt: Prompt, tokens: int, text: Text) -> str:
    """Return an answer; an honest one is what the prompt asks for as far as the content check reads
    it."""
    if text == "garbage":
        return GARBAGE
    words = (OTHER_SENTENCE if text == "another" else SENTENCE).split()
    chance = random.Random(f"{prompt.id} {tokens}")  # noqa: S311 - repeatable, not secret
    prose = " ".join(chance.choices(words, k=max(24, tokens // 4)))
    return json.dumps({"answer": prose}) if "json" in prompt.check else prose
