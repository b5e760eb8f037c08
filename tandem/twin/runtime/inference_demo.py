"""The stand-in for `inference_demo` of NxD Inference 0.6.10598."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tandem.twin.runtime.checkpoint import ModelError, read_model
from tandem.twin.runtime.knobs import Knobs
from tandem.twin.runtime.neuron_config import SettingsError
from tandem.twin.runtime.nxdi import CompileError, application, compile_to
from tandem.twin.runtime.programs import USAGE, UnknownVariableError, add_flags, announce, check_environment, programs

NAME = "inference_demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Compile as the real program does with `--compile-only`; the exit code."""
    announce(NAME)
    try:
        check_environment(os.environ)
    except UnknownVariableError as error:
        sys.stdout.write(f"{error}\n")
        return USAGE
    options = _parse(sys.argv[1:] if argv is None else argv)
    knobs = Knobs.read()
    attempt = knobs.begin()
    try:
        _run(options, knobs, attempt)
    except (ModelError, SettingsError, CompileError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    said = programs()[NAME]
    parser = argparse.ArgumentParser(prog=NAME, allow_abbrev=False)
    add_flags(parser, said["leading"])
    run = parser.add_subparsers(required=True).add_parser("run", allow_abbrev=False)
    add_flags(run, said["flags"])
    return parser.parse_args(argv)


def _run(options: argparse.Namespace, knobs: Knobs, attempt: int) -> None:
    sys.stdout.write("Loading configs...\n")
    if options.task_type != "causal-lm":
        raise SettingsError(f"AssertionError: Unsupported task: {options.model_type}/{options.task_type}")
    if not options.compile_only:
        raise SettingsError("RuntimeError: the stand-in loads nothing to a device; give --compile-only")
    target = read_model(options.model_path)
    draft = read_model(options.draft_model_path) if options.draft_model_path else None
    app = application(settings(options), target, draft, options.model_type)
    sys.stdout.write("\nCompiling and saving model...\n")
    compile_to(app, Path(options.compiled_model_path), knobs, attempt)


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments that the real program makes of its flags (create_neuron_config)."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    if options.on_device_sampling:
        given["on_device_sampling_config"] = dict(given)
    return given


if __name__ == "__main__":
    sys.exit(main())
