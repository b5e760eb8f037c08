"""What the user chose, the same for every command, and the flags that choose it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

Folder = Annotated[Path, Parameter(metavar="DIR")]


@Parameter(name="*", group=Group("In every command", sort_key=9))
@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the user chose, the same for every command.

    Args:
        environments: folder of environment files
        experiments: folder of experiment files
        as_json: print one JSON document
        names: environments; empty for all
        strict: treat warnings as errors
    """

    environments: Folder = Path("environments")
    experiments: Folder = Path("experiments")
    as_json: Annotated[bool, Parameter(name="--json")] = False
    names: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    strict: Annotated[bool, Parameter(parse=False)] = False

    def narrow(self, names: Iterable[str], *, strict: bool = False) -> Selection:
        """Return the selection of these environments, each once."""
        return replace(self, names=tuple(dict.fromkeys(names)), strict=strict)


DEFAULTS = Selection()
