"""The dated list of each program's flags and variables, as parsers and an environment check.

Invariant: a flag that is not in the list is refused, as the real program would refuse it. A
variable that is not in the list is refused too. A real program ignores unknown variables, but a
misspelt one would silently change nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PROGRAMS_FILE = Path(__file__).with_name("programs.yaml")
SETTING_PREFIX = "TANDEM_STANDIN_"  # of variables with which a test configures a stand-in
USAGE_ERROR = 2
DTYPES = ("float32", "float16", "bfloat16")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # each program reads the list at each start


class UnknownVariableError(Exception):
    """The environment has a variable that no program here reads."""


@cache
def read_programs() -> dict[str, Any]:
    """Return the list."""
    program_list: dict[str, Any] = yaml.load(PROGRAMS_FILE.read_text(), Loader=_Loader)  # noqa: S506 - safe, in C
    return program_list


def announce_stand_in(program: str) -> None:
    """Print the first line, which says that this is a stand-in."""
    fields = read_programs()[program]
    sys.stdout.write(
        f"STAND-IN: this is no {fields['title']} but what rehearses its place; nothing it writes"
        " can run\n"
    )
    sys.stdout.flush()


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse a variable that is not in the list, or has a value that means nothing.

    Raises:
        UnknownVariableError: the message names the variable.
    """
    program_list = read_programs()
    for name, value in sorted(environment.items()):
        if name.startswith(SETTING_PREFIX) or any(
            fnmatchcase(name, pattern) for pattern in program_list["surroundings"]["names"]
        ):
            continue
        variable = program_list["variables"].get(name)
        if variable is None:
            raise UnknownVariableError(
                f"{name} is not in the list of variables that a program reads"
                f" ({PROGRAMS_FILE.name})"
            )
        if not re.fullmatch(variable["values"], value):
            raise UnknownVariableError(
                f"{name}={value!r} means nothing to it ({variable['source']})"
            )


def add_flags(parser: argparse.ArgumentParser, flags: Mapping[str, Mapping[str, Any]]) -> None:
    """Add flags of the list to a parser, with the types that the real program has."""
    for flag, flag_fields in flags.items():
        name = flag_fields.get("name", flag.replace("-", "_"))
        common_options: dict[str, Any] = {
            "dest": name,
            "required": flag_fields.get("required", False),
        }
        if flag_fields["type"] == "switch":
            parser.add_argument(f"--{flag}", action="store_true", dest=name)
        elif flag_fields["type"] == "either":
            parser.add_argument(
                f"--{flag}", action=argparse.BooleanOptionalAction, default=None, dest=name
            )
        elif flag_fields["type"] == "ints":
            parser.add_argument(f"--{flag}", nargs="+", type=int, **common_options)
        elif flag_fields["type"] == "texts":
            parser.add_argument(f"--{flag}", action="append", **common_options)
        else:
            parser.add_argument(
                f"--{flag}",
                type=_TYPES[flag_fields["type"]],
                choices=flag_fields.get("choices"),
                default=flag_fields.get("default"),
                **common_options,
            )


def _parse_dtype(text: str) -> str:
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(f"Unsupported dtype: {text}")
    return text


def _parse_mapping(text: str) -> dict[str, Any]:
    try:
        mapping = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(mapping, dict):
        raise argparse.ArgumentTypeError("no mapping")
    return mapping


_TYPES: dict[str, Callable[[str], Any]] = {
    "text": str,
    "int": int,
    "float": float,
    "dtype": _parse_dtype,
    "json": _parse_mapping,
}
