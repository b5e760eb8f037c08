"""The dated list of what each program takes, as parsers and as a check of the environment.

Invariant: what is not in the list is refused, as the real program would refuse a flag; a variable too, although a
real program ignores those it does not know, because a misspelt one would silently change nothing.
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

LIST = Path(__file__).with_name("programs.yaml")
KNOB = "TANDEM_STANDIN_"  # what a test tells a stand-in
USAGE = 2
DTYPES = ("float32", "float16", "bfloat16")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # each program reads the list at each start


class UnknownVariableError(Exception):
    """The environment holds what no program here reads."""


@cache
def programs() -> dict[str, Any]:
    """Return the list."""
    found: dict[str, Any] = yaml.load(LIST.read_text(), Loader=_Loader)  # noqa: S506 - safe, in C
    return found


def announce(program: str) -> None:
    """Print the first line: what this is."""
    said = programs()[program]
    sys.stdout.write(f"STAND-IN: this is no {said['title']} but what rehearses its place; nothing it writes can run\n")
    sys.stdout.flush()


def check_environment(environment: Mapping[str, str]) -> None:
    """Refuse a variable that is not in the list, or has a value that means nothing.

    Raises:
        UnknownVariableError: it names the variable.
    """
    known = programs()
    for name, value in sorted(environment.items()):
        if name.startswith(KNOB) or any(fnmatchcase(name, one) for one in known["surroundings"]["names"]):
            continue
        said = known["variables"].get(name)
        if said is None:
            raise UnknownVariableError(f"{name} is not in the list of variables that a program reads ({LIST.name})")
        if not re.fullmatch(said["values"], value):
            raise UnknownVariableError(f"{name}={value!r} means nothing to it ({said['source']})")


def add_flags(parser: argparse.ArgumentParser, flags: Mapping[str, Mapping[str, Any]]) -> None:
    """Add flags of the list to a parser, with the types that the real program has."""
    for flag, said in flags.items():
        name = said.get("name", flag.replace("-", "_"))
        common: dict[str, Any] = {"dest": name, "required": said.get("required", False)}
        if said["type"] == "switch":
            parser.add_argument(f"--{flag}", action="store_true", dest=name)
        elif said["type"] == "either":
            parser.add_argument(f"--{flag}", action=argparse.BooleanOptionalAction, default=None, dest=name)
        elif said["type"] == "ints":
            parser.add_argument(f"--{flag}", nargs="+", type=int, **common)
        elif said["type"] == "texts":
            parser.add_argument(f"--{flag}", action="append", **common)
        else:
            parser.add_argument(
                f"--{flag}",
                type=_TYPES[said["type"]],
                choices=said.get("choices"),
                default=said.get("default"),
                **common,
            )


def _dtype(text: str) -> str:
    if text not in DTYPES:
        raise argparse.ArgumentTypeError(f"Unsupported dtype: {text}")
    return text


def _mapping(text: str) -> dict[str, Any]:
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from None
    if not isinstance(plain, dict):
        raise argparse.ArgumentTypeError("no mapping")
    return plain


_TYPES: dict[str, Callable[[str], Any]] = {"text": str, "int": int, "float": float, "dtype": _dtype, "json": _mapping}
