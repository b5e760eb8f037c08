"""`python -m tandem.bench.lm_eval`: ask the servers in TANDEM_SERVERS the tasks of an experiment.

Invariant: no traceback for a foreseeable fault. The process ends with 0 and writes its exit code
into outcome.json, because the next container stores the files, those of a failure too. Exit codes
there: 0 done; 2 bad input; 3 a server or lm-eval failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import msgspec

from tandem.bench.lm_eval.call import LmEvalCall
from tandem.bench.records.json_file import DECODE_ERRORS
from tandem.bench.records.manifest import ManifestArm, ServerOffers
from tandem.bench.records.quality_rows import QualityRow, write_quality
from tandem.bench.suites.task_items import (
    ITEMS_FILE,
    MAX_ANSWER_TOKENS,
    OWN_TASK,
    ItemTask,
    ask_items,
    load_items,
)
from tandem.errors import INTERRUPT_EXIT_CODE, InputError, TandemError

# NAME=URL of each server, the baseline first, with spaces between
SERVERS_VARIABLE = "TANDEM_SERVERS"
OUTCOME_FILE = "outcome.json"


class AskedTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A task as an experiment declares it; without a digest it is the one of ours."""

    name: str
    sha256: str | None
    items: int
    chance: float
    group: str | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Ask the tasks, write rows and outcome, return 0."""
    options = _build_parser().parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    code = 0
    problem = ""
    try:
        tasks = [msgspec.json.decode(text, type=AskedTask) for text in options.task]
        arms = _parse_servers(os.environ.get(SERVERS_VARIABLE, ""), options.model)
        rows = [_ask_task(task, arms, options) for task in tasks]
        write_quality(options.out, list(chain.from_iterable(rows)))
    except TandemError as error:
        code = error.exit_code
        problem = str(error)
    except DECODE_ERRORS as error:
        code = InputError.exit_code
        problem = f"--task: this is no task: {error}; render the manifests again"
    except KeyboardInterrupt:
        code = INTERRUPT_EXIT_CODE
        problem = "told to stop"
    sys.stderr.write(f"{problem or 'asked'}\n")
    outcome = json.dumps({"exit_code": code, "problem": problem})
    (options.out / OUTCOME_FILE).write_text(outcome + "\n")
    return 0


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tandem.bench.lm_eval", description="ask servers tasks"
    )
    add = parser.add_argument
    task_help = "as the experiment declares it"
    add("--task", action="append", required=True, metavar="JSON", help=task_help)
    add("--sets", type=Path, required=True, help="folder with a folder for each task set")
    add("--model", required=True, help="name that the servers go by")
    add("--max-prompt-tokens", type=int, required=True, help="of an item")
    add("--max-tokens", type=int, required=True, help="of an answer")
    add("--out", type=Path, required=True, help="new folder of all that is kept")
    return parser


def _ask_task(
    task: AskedTask, arms: Sequence[ManifestArm], options: argparse.Namespace
) -> list[QualityRow]:
    folder = options.sets / task.name
    own_items = folder / ITEMS_FILE if task.sha256 else OWN_TASK
    if not own_items.exists():
        call = LmEvalCall(
            python=Path(sys.executable),
            task=task.name,
            folder=folder,
            items=task.items,
            chance=task.chance,
            max_prompt_tokens=options.max_prompt_tokens,
            max_tokens=options.max_tokens,
            group=task.group,
        )
        return call.ask_servers(arms, options.out)
    if task.group:
        change = "write `group` into each item, and delete it from the experiment"
        raise InputError(
            f"group {task.group!r} needs documents of lm-eval, and this set has items of its own",
            where=task.name,
            change=change,
        )
    own_task = ItemTask(
        name=task.name,
        items=load_items(own_items)[: task.items],
        chance=task.chance,
        max_prompt_tokens=options.max_prompt_tokens,
        max_answer_tokens=min(options.max_tokens, MAX_ANSWER_TOKENS),
    )
    return asyncio.run(ask_items(arms, own_task, api="chat"))


def _parse_servers(text: str, model: str) -> list[ManifestArm]:
    pairs = [word.partition("=") for word in text.split()]
    if not pairs or not all(name and url.startswith("http") for name, _, url in pairs):
        change = "write NAME=http://HOST:PORT for each server"
        raise InputError(f"{text!r} names no servers", where=SERVERS_VARIABLE, change=change)
    offers = ServerOffers(include_usage=True)  # the tokens of a prompt, for its limit
    return [
        ManifestArm(
            name=name, role="variant" if index else "baseline", url=url, model=model, offers=offers
        )
        for index, (name, _, url) in enumerate(pairs)
    ]


if __name__ == "__main__":
    # a container's first process ignores a signal that it has no handler for
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
