"""`tandem new NAME`: a commented pair of files to start from.

Invariant: what is written passes `tandem check` with warnings only, and overwrites nothing.
"""

from __future__ import annotations

import argparse
import re
from importlib.resources import files
from pathlib import Path

from tandem.commands.outcome import Exit, print_json
from tandem.commands.selection import Selection
from tandem.rules.naming import TAKEN_NAMES
from tandem.shell_command import quote_command
from tandem.spec.faults import Fault, SpecError

NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")  # short enough for every name made from it


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("name", metavar="NAME", help="name of the environment and the experiment")


def new(name: str, chosen: Selection) -> Exit:
    """Write environments/NAME.yaml and experiments/NAME.yaml.

    Raises:
        SpecError: the name is no label, or one of the files exists.
    """
    targets = {
        chosen.environments / f"{name}.yaml": _template("environment.yaml", name),
        chosen.experiments / f"{name}.yaml": _template("experiment.yaml", name),
    }
    faults = [_exists(path) for path in targets if path.exists()] + _bad_name(name)
    if faults:
        raise SpecError(faults)
    for path, text in targets.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if chosen.as_json:
        print_json({"written": [str(path) for path in targets]})
    else:
        for path in targets:
            print(f"wrote {path}")
        print(f"next: fill in account, region, zones and price, then `{quote_command('tandem', 'check', name)}`")
    return Exit.DONE


def _template(file: str, name: str) -> str:
    return (files("tandem") / "commands" / "templates" / file).read_text().replace("NAME", name)


def _exists(path: Path) -> Fault:
    return Fault(file=str(path), path="", got="an existing file", allowed="a new name", change="choose another name")


def _bad_name(name: str) -> list[Fault]:
    if NAME.fullmatch(name) and name not in TAKEN_NAMES:
        return []
    return [
        Fault(
            file=f"{name}.yaml", path="", got=repr(name),
            allowed="lower-case letters, digits and dashes, starting with a letter, ending with none, at most 30; "
            f"not {', '.join(sorted(TAKEN_NAMES))}",
            change="choose another name",
        )
    ]  # fmt: skip
