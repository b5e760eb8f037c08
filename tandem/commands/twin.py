"""`tandem twin`: the servers of an experiment, rehearsed without an accelerator.

Invariant: the servers end with this process, however it ends. They differ as the experiment's variants do; their
classes are those of the built-in suites. aiohttp, numpy and the suites are loaded when this command runs, never before.
"""

from __future__ import annotations

import argparse
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.commands.inputs import read
from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.spec.experiment import Experiment
from tandem.spec.faults import Fault, SpecError

if TYPE_CHECKING:
    from tandem.bench.suites.suite import Prompt
    from tandem.twin.server.knobs import Knobs
    from tandem.twin.server.pair import Sketch

READY_S = 60.0
LAST_PORT = 65_535
MOST_FASTER = 100.0  # then a step is half a millisecond, as late as a chunk is written
BEYOND = 2  # an answer that is meant to run into max_tokens is longer by this factor
LENGTH, SPREAD = 0.5, 0.15  # of the least max_tokens of a class: its answers and how they differ; a thought fits in


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One server's process."""

    name: str
    process: subprocess.Popen[str]
    url: str


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--experiment", required=True, metavar="NAME", help="an experiment file's name")
    parser.add_argument(
        "--port", type=_port, default=0, metavar="P", help="of the first server, the next have the next"
    )
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the truth logs, VARIANT.jsonl")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of bursts and jitter; never of the text")
    parser.add_argument(
        "--faster", type=_factor, default=1.0, metavar="X", help="every time of the servers divided by X (default 1)"
    )
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write VARIANT.yaml there, to be edited; start nothing"
    )
    parser.add_argument(
        "then", nargs="*", metavar="-- COMMAND",
        help="run it while they serve, then end with its exit code; {VARIANT} in it becomes that server's URL",
    )  # fmt: skip


def _port(text: str) -> int:
    """Read a port; argparse tells what is no number, too."""
    port = int(text)
    if not 0 <= port <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{port} is no port: 0 to {LAST_PORT}")
    return port


def _factor(text: str) -> float:
    """Read how much faster; argparse tells what is no number, too."""
    factor = float(text)
    if not 1 / MOST_FASTER <= factor <= MOST_FASTER:
        raise argparse.ArgumentTypeError(f"{text} is no factor: {1 / MOST_FASTER:g} to {MOST_FASTER:g}")
    return factor


def twin(chosen: Selection, options: argparse.Namespace) -> Exit:
    """Start every variant's server, say where they listen, and wait for SIGINT or SIGTERM, or for a command's end.

    Raises:
        SpecError: there is no such experiment, it is refused, or a model of it has no figures.
        RuntimeError: a server did not come up.
        OSError: a folder cannot be written.
    """
    from tandem.spec.catalogue import catalogue  # noqa: PLC0415
    from tandem.twin.server.pair import pair  # noqa: PLC0415 - numpy and pydantic records, for this command alone

    experiment = _experiment(chosen, options.experiment)
    declared = pair(experiment, catalogue(), dict(sketches()), seed=options.seed)
    knobs = {name: each.faster(options.faster) for name, each in declared.items()}
    if options.write is not None:
        for path in _write(knobs, options.write):
            print(path)
        return Exit.DONE
    if options.log is not None:
        options.log.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tandem-twin-") as folder:
        files = _write(knobs, Path(folder))
        return _serve(files, knobs, options, as_json=chosen.as_json)


def _experiment(chosen: Selection, name: str) -> Experiment:
    everything = read(replace(chosen, names=(), strict=False))
    file = str(chosen.experiments / f"{name}.yaml")
    refused = [fault for fault in everything.faults if fault.file == file and fault.severity == "refusal"]
    if refused:
        raise SpecError(refused)
    declared = everything.workspace.experiments.get(name)
    if declared is None or declared.experiment is None:
        known = ", ".join(sorted(everything.workspace.experiments)) or "none yet"
        raise SpecError([Fault(file=file, path="", got="no such file", allowed=known, change="name one of these")])
    return declared.experiment


def sketches() -> Iterator[tuple[str, Sketch]]:
    """Yield the classes of the built-in suites; of texts that contain each other the longer class first."""
    from tandem.bench.suites.suite import BUILT_IN, load  # noqa: PLC0415

    suites = [load(name) for name in BUILT_IN]
    classes = [(name, suite.of_class(name), suite.defaults.max_tokens) for suite in suites for name in suite.classes]
    classes.sort(key=lambda one: -min(len(_text(prompt)) for prompt in one[1]))
    for name, prompts, most in classes:
        yield name, _sketch(prompts, most)


def _text(prompt: Prompt) -> str:
    return prompt.as_messages()[-1]["content"]


def _sketch(prompts: Sequence[Prompt], most: int) -> Sketch:
    from tandem.twin.server.pair import Sketch  # noqa: PLC0415

    shortest = min(prompt.max_tokens or most for prompt in prompts)
    runs_on = any("to-limit" in prompt.check for prompt in prompts)
    return Sketch(
        texts=tuple(_text(prompt) for prompt in prompts),
        output_tokens=shortest * BEYOND if runs_on else int(shortest * LENGTH),
        output_spread=0 if runs_on else int(shortest * SPREAD),
        as_json=any("json" in prompt.check for prompt in prompts),
    )


def _write(knobs: dict[str, Knobs], folder: Path) -> list[Path]:
    import yaml  # noqa: PLC0415 - already loaded, by the specs

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, each in knobs.items():
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(each.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
        files.append(path)
    return files


def _serve(files: Sequence[Path], knobs: dict[str, Knobs], options: argparse.Namespace, *, as_json: bool) -> Exit:
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    processes: list[subprocess.Popen[str]] = []
    try:
        for number, file in enumerate(files):
            processes.append(_start(file, options.port and options.port + number, options.log))
        running = [
            Running(name=file.stem, process=process, url=_url(file.stem, process, told))
            for file, process in zip(files, processes, strict=True)
        ]
        _say(running, knobs, as_json=as_json)
        if not options.then:
            return _wait(running, told)
        command = [filled(word, running) for word in options.then]
        processes.append(subprocess.Popen(command, text=True))  # noqa: S603 - the user's own command
        return _wait(running, told, processes[-1])
    finally:
        _end(processes)
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(file: Path, port: int, log: Path | None) -> subprocess.Popen[str]:
    logging = ["--log", str(log / f"{file.stem}.jsonl")] if log else []
    command = [sys.executable, "-m", "tandem.twin.server", "--knobs", str(file), "--port", str(port), "--with-parent"]
    return subprocess.Popen(  # noqa: S603 - this project's own program
        [*command, *logging], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,  # an interrupt at the terminal is this process's to pass on
    )  # fmt: skip


def _url(name: str, process: subprocess.Popen[str], told: threading.Event) -> str:
    assert process.stdout is not None
    ends = time.monotonic() + READY_S
    while time.monotonic() < ends and not told.is_set():
        if select.select([process.stdout], [], [], 0.2)[0]:
            line = process.stdout.readline()
            if line:
                return line.split()[1]
            break
    if told.is_set():
        raise KeyboardInterrupt
    code = process.poll()
    why = f"it was not ready after {READY_S:.0f} s" if code is None else f"exit code {code}, see what it said above"
    raise RuntimeError(f"the twin of {name} did not come up: {why}")


def _say(running: Sequence[Running], knobs: dict[str, Knobs], *, as_json: bool) -> None:
    if as_json:
        print_json({"servers": [
            {"name": one.name, "url": one.url, "model": knobs[one.name].model, "law": knobs[one.name].law,
             "num_speculative_tokens": knobs[one.name].num_speculative_tokens}
            for one in running
        ]})  # fmt: skip
        sys.stdout.flush()
        return
    for one in running:
        each = knobs[one.name]
        speculation = f"up to {each.num_speculative_tokens} drafted" if each.speculates else "plain decoding"
        print(f"{one.name} {one.url} {each.model}, {speculation}, step {each.step_ms[0]:g} ms")
    print("times and acceptance are assumed or inferred: tandem/twin/server/data/calibration.yaml", file=sys.stderr)
    print("ready", flush=True)


def filled(word: str, running: Sequence[Running]) -> str:
    """Return a word of the user's command with every `{VARIANT}` replaced by that server's URL."""
    for one in running:
        word = word.replace(f"{{{one.name}}}", one.url)
    return word


def _wait(running: Sequence[Running], told: threading.Event, then: subprocess.Popen[str] | None = None) -> Exit:
    while not told.wait(0.2):
        if then is not None and then.poll() is not None:
            known = then.returncode in set(Exit)
            return Exit(then.returncode) if known else Exit.WORLD_FAILED
        for one in running:
            if one.process.poll() is not None:
                raise RuntimeError(f"the twin of {one.name} ended by itself with exit code {one.process.returncode}")
    return Exit.DONE


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate()
