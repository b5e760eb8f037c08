"""`tandem simulate`: simulated servers of an experiment, without an accelerator.

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

from tandem.cli.inputs import read_inputs
from tandem.cli.outcome import print_json
from tandem.cli.selection import Selection
from tandem.errors import ExitCode
from tandem.spec.experiment import Experiment
from tandem.spec.faults import SpecError, SpecFault

if TYPE_CHECKING:
    from tandem.bench.suites.suite import Prompt
    from tandem.simulator.settings import SimulatorSettings
    from tandem.simulator.variant_settings import PromptClassProfile

READY_TIMEOUT_S = 60.0
LAST_PORT = 65_535
MAX_TIME_SCALE = 100.0  # then a step is half a millisecond, as late as a chunk is written
OVERRUN_FACTOR = 2  # an answer that is meant to run into max_tokens is longer by this factor
# of the least max_tokens of a class: its answers and how they differ; a thought fits in
LENGTH_SHARE, SPREAD_SHARE = 0.5, 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorProcess:
    """One server's process."""

    name: str
    process: subprocess.Popen[str]
    url: str


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--experiment", required=True, metavar="NAME", help="an experiment file's name")
    parser.add_argument(
        "--port", type=_parse_port, default=0, metavar="P", help="of the first server, the next have the next"
    )
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the truth logs, VARIANT.jsonl")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of bursts and jitter; never of the text")
    parser.add_argument(
        "--time-scale",
        type=_parse_factor,
        default=1.0,
        metavar="X",
        help="every time of the servers divided by X (default 1)",
    )
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write VARIANT.yaml there, to be edited; start nothing"
    )
    parser.add_argument(
        "then", nargs="*", metavar="-- COMMAND",
        help="run it while they serve, then end with its exit code; {VARIANT} in it becomes that server's URL",
    )  # fmt: skip


def _parse_port(text: str) -> int:
    """Read a port; argparse tells what is no number, too."""
    port = int(text)
    if not 0 <= port <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{port} is no port: 0 to {LAST_PORT}")
    return port


def _parse_factor(text: str) -> float:
    """Read how much faster; argparse tells what is no number, too."""
    factor = float(text)
    if not 1 / MAX_TIME_SCALE <= factor <= MAX_TIME_SCALE:
        raise argparse.ArgumentTypeError(f"{text} is no factor: {1 / MAX_TIME_SCALE:g} to {MAX_TIME_SCALE:g}")
    return factor


def simulate(selection: Selection, options: argparse.Namespace) -> ExitCode:
    """Start every variant's server, say where they listen, and wait for SIGINT or SIGTERM, or for a command's end.

    Raises:
        SpecError: there is no such experiment, it is refused, or a model of it has no figures.
        RuntimeError: a server did not come up.
        OSError: a folder cannot be written.
    """
    from tandem.simulator.variant_settings import build_variant_settings  # noqa: PLC0415 - numpy and pydantic records, for this command alone
    from tandem.spec.catalogue import load_catalogue  # noqa: PLC0415

    experiment = _read_experiment(selection, options.experiment)
    declared_settings = build_variant_settings(experiment, load_catalogue(), dict(list_sketches()), seed=options.seed)
    settings = {
        name: variant_settings.scale_time(options.time_scale) for name, variant_settings in declared_settings.items()
    }
    if options.write is not None:
        for path in _write_settings(settings, options.write):
            print(path)
        return ExitCode.DONE
    if options.log is not None:
        options.log.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tandem-simulate-") as folder:
        files = _write_settings(settings, Path(folder))
        return _serve_variants(files, settings, options, as_json=selection.as_json)


def _read_experiment(selection: Selection, name: str) -> Experiment:
    all_inputs = read_inputs(replace(selection, names=(), strict=False))
    file = str(selection.experiments / f"{name}.yaml")
    refusals = [fault for fault in all_inputs.faults if fault.file == file and fault.severity == "refusal"]
    if refusals:
        raise SpecError(refusals)
    declaration = all_inputs.workspace.experiments.get(name)
    if declaration is None or declaration.experiment is None:
        experiment_names = ", ".join(sorted(all_inputs.workspace.experiments)) or "none yet"
        raise SpecError(
            [SpecFault(file=file, path="", got="no such file", allowed=experiment_names, change="name one of these")]
        )
    return declaration.experiment


def list_sketches() -> Iterator[tuple[str, PromptClassProfile]]:
    """Yield the classes of the built-in suites; of texts that contain each other the longer class first."""
    from tandem.bench.suites.suite import BUILT_IN, load_suite  # noqa: PLC0415

    suites = [load_suite(name) for name in BUILT_IN]
    classes = [
        (name, suite.class_prompts(name), suite.defaults.max_tokens) for suite in suites for name in suite.classes
    ]
    classes.sort(key=lambda class_entry: -min(len(_read_user_text(prompt)) for prompt in class_entry[1]))
    for name, prompts, max_tokens in classes:
        yield name, _build_sketch(prompts, max_tokens)


def _read_user_text(prompt: Prompt) -> str:
    return prompt.as_messages()[-1]["content"]


def _build_sketch(prompts: Sequence[Prompt], max_tokens: int) -> PromptClassProfile:
    from tandem.simulator.variant_settings import PromptClassProfile  # noqa: PLC0415

    shortest = min(prompt.max_tokens or max_tokens for prompt in prompts)
    runs_on = any("to-limit" in prompt.check for prompt in prompts)
    return PromptClassProfile(
        texts=tuple(_read_user_text(prompt) for prompt in prompts),
        output_tokens=shortest * OVERRUN_FACTOR if runs_on else int(shortest * LENGTH_SHARE),
        output_spread=0 if runs_on else int(shortest * SPREAD_SHARE),
        as_json=any("json" in prompt.check for prompt in prompts),
    )


def _write_settings(settings: dict[str, SimulatorSettings], folder: Path) -> list[Path]:
    import yaml  # noqa: PLC0415 - already loaded, by the specs

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, variant_settings in settings.items():
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(variant_settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
        files.append(path)
    return files


def _serve_variants(
    files: Sequence[Path], settings: dict[str, SimulatorSettings], options: argparse.Namespace, *, as_json: bool
) -> ExitCode:
    stop_event = threading.Event()
    previous_handlers = {
        number: signal.signal(number, lambda *_: stop_event.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    processes: list[subprocess.Popen[str]] = []
    try:
        for number, file in enumerate(files):
            processes.append(_start_server(file, options.port and options.port + number, options.log))
        servers = [
            SimulatorProcess(name=file.stem, process=process, url=_read_url(file.stem, process, stop_event))
            for file, process in zip(files, processes, strict=True)
        ]
        _print_servers(servers, settings, as_json=as_json)
        if not options.then:
            return _wait_servers(servers, stop_event)
        command = [fill_urls(word, servers) for word in options.then]
        processes.append(subprocess.Popen(command, text=True))  # noqa: S603 - the user's own command
        return _wait_servers(servers, stop_event, processes[-1])
    finally:
        _end_processes(processes)
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _start_server(file: Path, port: int, log: Path | None) -> subprocess.Popen[str]:
    log_options = ["--log", str(log / f"{file.stem}.jsonl")] if log else []
    command = [sys.executable, "-m", "tandem.simulator", "--knobs", str(file), "--port", str(port), "--with-parent"]
    return subprocess.Popen(  # noqa: S603 - this project's own program
        [*command, *log_options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True,  # an interrupt at the terminal is this process's to pass on
    )  # fmt: skip


def _read_url(name: str, process: subprocess.Popen[str], stop_event: threading.Event) -> str:
    assert process.stdout is not None
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline_s and not stop_event.is_set():
        if select.select([process.stdout], [], [], 0.2)[0]:
            line = process.stdout.readline()
            if line:
                return line.split()[1]
            break
    if stop_event.is_set():
        raise KeyboardInterrupt
    code = process.poll()
    reason = (
        f"it was not ready after {READY_TIMEOUT_S:.0f} s"
        if code is None
        else f"exit code {code}, see what it said above"
    )
    raise RuntimeError(f"the simulator of {name} did not come up: {reason}")


def _print_servers(
    servers: Sequence[SimulatorProcess], settings: dict[str, SimulatorSettings], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "servers": [
                    {
                        "name": server.name,
                        "url": server.url,
                        "model": settings[server.name].model,
                        "law": settings[server.name].law,
                        "num_speculative_tokens": settings[server.name].num_speculative_tokens,
                    }
                    for server in servers
                ]
            }
        )
        sys.stdout.flush()
        return
    for server in servers:
        variant_settings = settings[server.name]
        speculation = (
            f"up to {variant_settings.num_speculative_tokens} drafted"
            if variant_settings.uses_speculation
            else "plain decoding"
        )
        print(
            f"{server.name} {server.url} {variant_settings.model}, {speculation}, step "
            f"{variant_settings.step_ms[0]:g} ms"
        )
    print("times and acceptance are assumed or inferred: tandem/simulator/data/calibration.yaml", file=sys.stderr)
    print("ready", flush=True)


def fill_urls(word: str, servers: Sequence[SimulatorProcess]) -> str:
    """Return a word of the user's command with every `{VARIANT}` replaced by that server's URL."""
    for server in servers:
        word = word.replace(f"{{{server.name}}}", server.url)
    return word


def _wait_servers(
    servers: Sequence[SimulatorProcess],
    stop_event: threading.Event,
    command_process: subprocess.Popen[str] | None = None,
) -> ExitCode:
    while not stop_event.wait(0.2):
        if command_process is not None and command_process.poll() is not None:
            is_exit_code = command_process.returncode in set(ExitCode)
            return ExitCode(command_process.returncode) if is_exit_code else ExitCode.EXTERNAL_FAILURE
        for server in servers:
            if server.process.poll() is not None:
                raise RuntimeError(
                    f"the simulator of {server.name} ended by itself with exit code {server.process.returncode}"
                )
    return ExitCode.DONE


def _end_processes(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate()
