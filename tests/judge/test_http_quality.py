"""Quality over HTTP: how often equal servers are said to differ, and how often a worse server is
found.

A draw is 200 new items for two simulated servers, each a process of its own. A share of each
server's answers is noise, at places of its own: equal servers are as good as each other, and not
alike. A seed repeats items and noise.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
import yaml

from tandem.bench.records.manifest import ManifestArm
from tandem.bench.suites.task_items import CONCURRENCY, ItemTask, TaskItem, ask_items
from tandem.judge.quality import judge_quality
from tandem.simulator.text_generator import generate_text

ROOT = Path(__file__).parents[2]
MODEL = "m"
ITEMS = 200
DRAWS = 100
SEED = 23
MOST_FALSE = 5  # of 100 draws of equal servers
SHORT_TOKENS = 8
LONG_TOKENS = 16
CUT_TOKENS = 12
LONG_EVERY = 8
ADD = {"default": {"form": "sum"}}
ADD_WRONG = {"default": {"form": "sum", "wrong_every": 10}}


def recite(long_tokens: int) -> dict[str, Any]:
    """Return classes that recite a passage; a long one has so many tokens."""
    long = {"output_tokens": long_tokens, "contains": ["in full"]}
    return {"default": {"output_tokens": SHORT_TOKENS}, "long": long}


def draw_sum(chance: random.Random, number: int) -> TaskItem:
    """Return a sum to add."""
    first = chance.randrange(100, 1000)
    second = chance.randrange(100, 1000)
    return TaskItem(
        item=f"{number}", prompt=f"What is {first} + {second}?", answer=f"{first + second}"
    )


def draw_passage(chance: random.Random, number: int) -> TaskItem:
    """Return a passage to recite, whose last word is the answer; one of `LONG_EVERY` is long."""
    is_long = number % LONG_EVERY == 0
    prompt = f"Recite passage {chance.randrange(10**9)} {'in full' if is_long else 'in short'}."
    pieces = itertools.islice(generate_text(prompt), (LONG_TOKENS if is_long else SHORT_TOKENS) - 1)
    return TaskItem(item=f"{number}", prompt=prompt, answer=re.findall(r"\w+", "".join(pieces))[-1])


@dataclass(frozen=True)
class QualityCase:
    """Two servers and their task.

    Attributes:
        noise: share of each server's answers that is noise.
        baseline, variant: classes of prompts of the two servers.
        least_found: of 100 draws in which the variant is found worse; 0 for an equal one.
    """

    noise: float
    baseline: dict[str, Any]
    variant: dict[str, Any]
    draw_item: Callable[[random.Random, int], TaskItem] = draw_sum
    least_found: int = 0


EQUAL = {
    "equal, noise 0.2 %": QualityCase(0.002, ADD, ADD),
    "equal, noise 1 %": QualityCase(0.01, ADD, ADD),
    "equal, noise 5 %": QualityCase(0.05, ADD, ADD),
}
WORSE = {  # expected: 100, 98, 78 and 100
    "every tenth wrong, no noise": QualityCase(0, ADD, ADD_WRONG, least_found=98),
    "every tenth wrong, noise 1 %": QualityCase(0.01, ADD, ADD_WRONG, least_found=93),
    "every tenth wrong, noise 5 %": QualityCase(0.05, ADD, ADD_WRONG, least_found=63),
    "every eighth cut, noise 1 %": QualityCase(
        0.01, recite(LONG_TOKENS), recite(CUT_TOKENS), draw_passage, least_found=97
    ),
}


@contextlib.contextmanager
def serve(classes: dict[str, Any], noise: float, seed: int) -> Iterator[str]:
    """Run a simulator that takes next to no time; yield its URL."""
    knobs = {
        "model": MODEL,
        "step_ms": [0.05],
        "prefill_base_ms": 0.05,
        "prefill_ms_per_token": 0,
        "seed": seed,
        "max_num_seqs": CONCURRENCY,
        "classes": classes,
        "faults": [{"kind": "garbage", "rate": noise}] if noise else [],
    }
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "knobs.yaml"
        file.write_text(yaml.safe_dump(knobs))
        command = [sys.executable, "-m", "tandem.simulator", "--knobs", str(file)]
        process = stack.enter_context(
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(process.terminate)
        assert process.stdout is not None
        yield process.stdout.readline().split()[1]


def count_words(case: QualityCase, draws: int, seed: str) -> Counter[str]:
    """Return how often each word is said of the variant."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    words = Counter[str]()
    with contextlib.ExitStack() as stack:
        urls = [
            stack.enter_context(serve(classes, case.noise, chance.randrange(2**31)))
            for classes in (case.baseline, case.variant)
        ]
        arms = (
            ManifestArm(name="plain", role="baseline", url=urls[0], model=MODEL),
            ManifestArm(name="spec", role="variant", url=urls[1], model=MODEL),
        )
        for _ in range(draws):
            items = tuple(case.draw_item(chance, number) for number in range(ITEMS))
            rows = uvloop.run(ask_items(arms, ItemTask(name="task", items=items), api="chat"))
            words.update(task.word for task in judge_quality(rows, "plain", ["spec"]))
    return words


@pytest.mark.proof
def test_worse_server_is_found():
    words = count_words(WORSE["every tenth wrong, no noise"], 1, f"{SEED}")
    assert words == {"worse": 1}


@pytest.mark.proof
def test_judge_that_sees_only_chance_is_caught(monkeypatch):
    monkeypatch.setattr("tandem.judge.quality.FALSE_CALL", 0.0)
    with pytest.raises(AssertionError):
        test_worse_server_is_found()


@pytest.mark.proof
def test_judge_that_takes_chance_for_a_difference_is_caught(monkeypatch):
    monkeypatch.setattr("tandem.judge.quality.FALSE_CALL", 2.0)
    monkeypatch.setattr("tandem.judge.quality._find_interval", measure_difference)
    monkeypatch.setitem(globals(), "DRAWS", 2 * MOST_FALSE)
    with pytest.raises(AssertionError):
        test_few_draws_of_equal_servers_say_a_difference("equal, noise 5 %", f"{SEED}")


def measure_difference(units, *_):
    """Return the difference as an interval without width."""
    difference = sum(unit.only_variant - unit.only_baseline for unit in units) / sum(
        unit.items for unit in units
    )
    return difference, difference


def print_words(name: str, words: Counter[str], seed: str) -> None:
    """Print the words of a case: the proof's figures."""
    sys.stderr.write(f"\nseed {seed}: {name}: {dict(words)}\n")


@pytest.mark.proof
@pytest.mark.parametrize("name", EQUAL)
def test_few_draws_of_equal_servers_say_a_difference(name, proof_seed):
    words = count_words(EQUAL[name], DRAWS, f"{proof_seed} {name}")
    print_words(name, words, proof_seed)
    assert words["better"] + words["worse"] <= MOST_FALSE


@pytest.mark.proof
@pytest.mark.parametrize("name", WORSE)
def test_nearly_all_draws_find_a_worse_server(name, proof_seed):
    words = count_words(WORSE[name], DRAWS, f"{proof_seed} {name}")
    print_words(name, words, proof_seed)
    assert (words["worse"] >= WORSE[name].least_found, words["better"]) == (True, 0)
