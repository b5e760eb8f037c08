"""The stand-in for `inference_demo` of NxD Inference 0.6.10598."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rehearsal.runtime.model_folder import ModelFolderError, read_model
from rehearsal.runtime.neuron_config import NeuronSettingsError
from rehearsal.runtime.nxdi import NeuronCompileError, build_application, compile_application
from rehearsal.runtime.programs import (
    USAGE_ERROR,
    UnknownVariableError,
    add_flags,
    announce_stand_in,
    check_environment,
    read_programs,
)
from rehearsal.runtime.settings import StandInSettings

PROGRAM_NAME = "inference_demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Compile as the real program does with `--compile-only`; return the exit code."""
    announce_stand_in(PROGRAM_NAME)
    try:
        check_environment(os.environ)
    except UnknownVariableError as error:
        sys.stdout.write(f"{error}\n")
        return USAGE_ERROR
    options = _parse_options(sys.argv[1:] if argv is None else argv)
    stand_in_settings = StandInSettings.read()
    attempt = stand_in_settings.start_attempt()
    try:
        _run_compilation(options, stand_in_settings, attempt)
    except (ModelFolderError, NeuronSettingsError, NeuronCompileError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 0


def _parse_options(argv: Sequence[str]) -> argparse.Namespace:
    program = read_programs()[PROGRAM_NAME]
    parser = argparse.ArgumentParser(prog=PROGRAM_NAME, allow_abbrev=False)
    add_flags(parser, program["leading"])
    run_parser = parser.add_subparsers(required=True).add_parser("run", allow_abbrev=False)
    add_flags(run_parser, program["flags"])
    return parser.parse_args(argv)


def _run_compilation(
    options: argparse.Namespace, stand_in_settings: StandInSettings, attempt: int
) -> None:
    sys.stdout.write("Loading configs...\n")
    if options.task_type != "causal-lm":
        raise NeuronSettingsError(
            f"AssertionError: Unsupported task: {options.model_type}/{options.task_type}"
        )
    if not options.compile_only:
        raise NeuronSettingsError(
            "RuntimeError: the stand-in loads nothing to a device; give --compile-only"
        )
    target = read_model(options.model_path)
    draft = read_model(options.draft_model_path) if options.draft_model_path else None
    nxdi_application = build_application(
        compile_settings(options), target, draft, options.model_type
    )
    sys.stdout.write("\nCompiling and saving model...\n")
    compile_application(
        nxdi_application, Path(options.compiled_model_path), stand_in_settings, attempt
    )


def compile_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments the real program makes of flags (create_neuron_config)."""
    values = {name: value for name, value in vars(options).items() if value is not None}
    if options.on_device_sampling:
        values["on_device_sampling_config"] = dict(values)
    return values


if __name__ == "__main__":
    sys.exit(main())
