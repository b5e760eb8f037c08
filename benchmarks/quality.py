"""Run the quality Job's program with lm-eval on two real local vLLM servers: `make quality`.

Plain decoding and speculation with the target as its own draft, both on the processor; 200 seeded
items in local files, because no hub of data sets is needed. The figures stand in docs/quality.md.
Exit codes: 0 done; 3 vLLM or lm-eval is not available, or a server failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.installation import ensure_python
from rehearsal.vllm_cpu.server import MODEL, CpuVllmServer, build_self_draft
from rehearsal.vllm_cpu.weights import ensure_weights
from tandem.bench.lm_eval.__main__ import OUTCOME_FILE, SERVERS_VARIABLE
from tandem.bench.records.quality_rows import read_quality
from tandem.judge.quality import judge_quality
from tandem.judge.text_format import describe_quality

ROOT = Path(__file__).resolve().parents[1]

LM_EVAL = ROOT / ".venv-lm-eval" / "bin" / "python"
OUT = ROOT / "build" / "quality"
SEED = 7
ITEMS = 200
LENGTHS = ("--max-prompt-tokens", "128", "--max-tokens", "32")
TASK = "tandem_words"
WORDS = (
    "apple",
    "river",
    "stone",
    "cloud",
    "window",
    "garden",
    "silver",
    "planet",
    "market",
    "bridge",
    "candle",
    "forest",
)


def main() -> int:
    """Write the task, start both servers, run lm-eval against each, print the words."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--items", type=int, default=ITEMS, help=f"items of the task (default {ITEMS})"
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the items (default {SEED})")
    options = parser.parse_args()
    write_task(OUT / "sets" / TASK, options.seed, options.items)
    try:
        with ExitStack() as stack:
            outcome = ask_servers(" ".join(start_servers(stack)), options.items)
    except VllmSetupError as fault:
        print(fault, file=sys.stderr)
        return 3
    if outcome["exit_code"]:
        return 3
    for task in judge_quality(read_quality(OUT / "answers"), "plain", ["speculative"]):
        print(f"{task.task}, seed {options.seed}: {task.word}; {describe_quality(task, 'plain')}")
    return 0


def ask_servers(servers: str, items: int) -> dict[str, Any]:
    """Run the program of the quality Job on the task; return its outcome."""
    # a set that lies in the folder
    task = {"name": TASK, "sha256": "0" * 64, "items": items, "chance": 0.0}
    words = [
        "--task",
        json.dumps(task),
        "--sets",
        str(OUT / "sets"),
        "--out",
        str(OUT / "answers"),
        "--model",
        MODEL,
    ]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), SERVERS_VARIABLE: servers}
    shutil.rmtree(OUT / "answers", ignore_errors=True)
    subprocess.run(
        [str(LM_EVAL), "-m", "tandem.bench.lm_eval", *words, *LENGTHS], check=True, env=variables
    )
    return json.loads((OUT / "answers" / OUTCOME_FILE).read_text())


def write_task(folder: Path, seed: int, count: int) -> None:
    """Write the items and the task of lm-eval that reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(item) for item in list_items(seed, count)]
    (folder / f"{TASK}.jsonl").write_text("\n".join(lines) + "\n")
    last_word = {
        "function": "regex",
        "regex_pattern": "([a-z]+|[0-9]+)[^a-z0-9]*$",
        "group_select": -1,
    }
    task = {
        "task": TASK,
        "output_type": "generate_until",
        "test_split": "test",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{TASK}.jsonl"}},
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["</s>"], "do_sample": False, "temperature": 0},
        "filter_list": [{"name": "last-word", "filter": [last_word, {"function": "take_first"}]}],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }
    (folder / f"{TASK}.yaml").write_text(json.dumps(task, indent=2) + "\n")  # JSON is YAML


def list_items(seed: int, count: int) -> list[dict[str, str]]:
    """Return the items: half repeat a word, half add two digits."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    items = []
    for number in range(count):
        if number % 2:
            first = chance.randrange(2, 10)
            second = chance.randrange(2, 10)
            prompt = f"What is {first} + {second}? Answer with the number alone."
            answer = str(first + second)
        else:
            answer = chance.choice(WORDS)
            prompt = f"Repeat this word, and nothing else: {answer}"
        items.append({"item": f"item-{number:03}", "prompt": prompt, "answer": answer})
    return items


def start_servers(stack: ExitStack) -> Iterator[str]:
    """Start each server and yield NAME=URL of it; the stack stops it."""
    interpreter = ensure_python()
    weights = ensure_weights(interpreter)
    speculations = {"plain": None, "speculative": build_self_draft(weights)}
    for name, speculation in speculations.items():
        server = CpuVllmServer(
            interpreter=interpreter,
            weights=weights,
            name=name,
            folder=OUT / "logs",
            speculation=speculation,
        )
        stack.callback(server.stop)
        print(f"starting vLLM {name} (up to a minute)", file=sys.stderr)
        yield f"{name}={server.start().url}"


if __name__ == "__main__":
    sys.exit(main())
