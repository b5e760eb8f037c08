"""`tandem simulate`: simulated servers of an experiment, without an accelerator.

Invariant: the servers end with this process, however it ends. They differ as the experiment's
variants do; their classes are those of the built-in suites. aiohttp, numpy and the suites are
loaded when this command runs, never before.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from tandem.bench.suites.suite import BUILT_IN, load_suite
from tandem.cli.console import print_result
from tandem.cli.flags import Name, Whole, require_range
from tandem.cli.inputs import read_legal_experiment
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.catalogue import load_catalogue
from tandem.errors import ExitCode
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings
from tandem.simulator.variant_settings import build_variant_settings

POLL_S = 0.2
LAST_PORT = 65_535
MAX_TIME_SCALE = 100.0  # then a step is half a millisecond, as late as a chunk is written
OVERRUN_FACTOR = 2  # an answer that is meant to run into max_tokens is longer by this factor
# of the least max_tokens of a class: its answers and how they differ; a thought fits in
LENGTH_SHARE = 0.5
SPREAD_SHARE = 0.15


def simulate(
    *then: Annotated[str, Parameter(metavar="-- COMMAND")],
    experiment: Name,
    port: Annotated[Whole, Parameter(metavar="P", validator=require_range(0, LAST_PORT))] = 0,
    log: Annotated[Path | None, Parameter(metavar="DIR")] = None,
    seed: Whole = 0,
    time_scale: Annotated[
        float, Parameter(metavar="X", validator=require_range(1 / MAX_TIME_SCALE, MAX_TIME_SCALE))
    ] = 1.0,
    write: Annotated[Path | None, Parameter(metavar="DIR")] = None,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """Start simulated servers of an experiment, without an accelerator.

    They wait for SIGINT or SIGTERM, or for the end of a command.

    Args:
        then: command to run while they serve; its exit code becomes this one's, and {VARIANT} in it
            becomes the URL of that server
        experiment: name of the experiment
        port: port of the first server; the others use the next ones (default: any free)
        log: folder for the logs of the servers, VARIANT.jsonl
        seed: seed of bursts and jitter, not of the text (default: 0)
        time_scale: divide every time of the servers by X
        write: write the settings to DIR/VARIANT.yaml, and start nothing

    Raises:
        SpecError: there is no such experiment, it is refused, or a model of it has no figures.
        RuntimeError: a server did not start.
        OSError: a folder cannot be written.
    """
    catalogue = load_catalogue()
    declared = read_legal_experiment(selection, experiment, catalogue)
    declared_settings = build_variant_settings(
        declared, catalogue, dict(list_sketches()), seed=seed
    )
    settings = {
        name: settings.scale_time(time_scale) for name, settings in declared_settings.items()
    }
    if write is not None:
        print(*_write_settings(settings, write), sep="\n")
        return ExitCode.DONE
    if log is not None:
        log.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tandem-simulate-") as folder:
        commands = {}
        for number, file in enumerate(_write_settings(settings, Path(folder))):
            command = [sys.executable, "-m", "tandem.simulator", "--knobs", str(file)]
            command += ["--port", str(port and port + number), "--with-parent"]
            if log is not None:
                command += ["--log", str(log / f"{file.stem}.jsonl")]
            commands[file.stem] = command
        return _serve_variants(commands, settings, then, as_json=selection.as_json)


def list_sketches() -> Iterator[tuple[str, PromptClassSettings]]:
    """Yield the classes of built-in suites and of sums; a longer name before one it contains."""
    sketches = [
        ("sum", PromptClassSettings(contains=("Answer with the number alone",), form="sum"))
    ]
    for suite in map(load_suite, BUILT_IN):
        for name in suite.classes:
            prompts = suite.class_prompts(name)
            shortest = min(prompt.max_tokens or suite.defaults.max_tokens for prompt in prompts)
            runs_on = any("to-limit" in prompt.check for prompt in prompts)
            profile = PromptClassSettings(
                contains=tuple(prompt.as_messages()[-1]["content"] for prompt in prompts),
                output_tokens=(
                    shortest * OVERRUN_FACTOR if runs_on else int(shortest * LENGTH_SHARE)
                ),
                output_spread=0 if runs_on else int(shortest * SPREAD_SHARE),
                form="json" if any("json" in prompt.check for prompt in prompts) else "prose",
            )
            sketches.append((name, profile))
    yield from sorted(sketches, key=lambda sketch: -min(map(len, sketch[1].contains)))


def _write_settings(settings: Mapping[str, SimulatorSettings], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, variant_settings in settings.items():
        text = yaml.safe_dump(
            variant_settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True
        )
        (folder / f"{name}.yaml").write_text(text)
    return [folder / f"{name}.yaml" for name in settings]


def _serve_variants(
    commands: Mapping[str, list[str]],
    settings: Mapping[str, SimulatorSettings],
    then: Sequence[str],
    *,
    as_json: bool,
) -> ExitCode:
    """Start the servers, say where they listen, and wait; whatever happens, all end.

    A word `{VARIANT}` of the command `then` becomes that server's URL.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    old_handlers = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    processes: list[subprocess.Popen[str]] = []
    try:
        processes += map(_start_server, commands.values())
        servers = dict(zip(commands, processes, strict=True))
        urls = {name: _read_url(name, process) for name, process in servers.items()}
        try:
            _print_servers(urls, settings, as_json=as_json)
            if then:
                words = [_insert_urls(word, urls) for word in then]
                processes.append(subprocess.Popen(words, text=True))  # noqa: S603 - the user's own command
            return _wait_servers(servers, processes[-1] if then else None)
        except KeyboardInterrupt:
            return ExitCode.DONE
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate()
        for number, handler in old_handlers.items():
            signal.signal(number, handler)


def _start_server(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - this project's own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt at the terminal is this process's to pass on
    )


def _insert_urls(word: str, urls: Mapping[str, str]) -> str:
    for name, url in urls.items():
        word = word.replace(f"{{{name}}}", url)
    return word


def _read_url(name: str, process: subprocess.Popen[str]) -> str:
    """Return where a server listens, which it says when it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        code = process.wait()
        raise RuntimeError(
            f"the simulator of {name} did not start: exit code {code}, see its output above"
        )
    return line.split()[1]


def _print_servers(
    urls: Mapping[str, str], settings: Mapping[str, SimulatorSettings], *, as_json: bool
) -> None:
    rows = []
    lines = []
    for name, url in urls.items():
        own = settings[name]
        window = own.num_speculative_tokens
        row = {
            "name": name,
            "url": url,
            "model": own.model,
            "law": own.law,
            "num_speculative_tokens": window,
        }
        rows.append(row)
        speculation = f"up to {window} drafted" if window else "plain decoding"
        step = f"step {own.step_ms[0]:g} ms"
        lines.append(f"{name} {url} {own.model}, {speculation}, {step}")
    print_result({"servers": rows}, [*lines, "ready"], as_json=as_json)
    if not as_json:
        print(
            "times and acceptance are assumed or inferred: tandem/simulator/data/calibration.yaml",
            file=sys.stderr,
        )
    sys.stdout.flush()


def _wait_servers(
    servers: Mapping[str, subprocess.Popen[str]], command: subprocess.Popen[str] | None
) -> ExitCode:
    """Return when the command has ended, or never; the servers live as long."""
    while True:
        time.sleep(POLL_S)
        if command is not None and command.poll() is not None:
            is_exit_code = command.returncode in set(ExitCode)
            return ExitCode(command.returncode) if is_exit_code else ExitCode.EXTERNAL_FAILURE
        for name, process in servers.items():
            if process.poll() is not None:
                raise RuntimeError(
                    f"the simulator of {name} ended by itself with exit code {process.returncode}"
                )
