"""The kinds of flags that several commands have, each with its bounds.

Invariant: nothing is loaded here but the command line's library and limits, so that every command
starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import ArgumentCollection, Parameter, Token
from cyclopts.validators import MutuallyExclusive

from tandem.bench.plan.run_options import PRICE_LIMITS, SizeName

Value = TypeVar("Value")


def require_range(
    minimum: float, maximum: float, unit: str = ""
) -> Callable[[Any, float | None], None]:
    """Return a validator of numbers; it refuses what is no number too.

    Args:
        minimum, maximum: both are allowed.
        unit: named in the refusal.
    """
    bounds = " to ".join(f"{bound:f}".rstrip("0").rstrip(".") for bound in (minimum, maximum))

    def check_range(_type: Any, value: float | None) -> None:
        if value is not None and not minimum <= value <= maximum:
            raise ValueError(f"Allowed: {unit and f'{unit}, '}from {bounds}.")

    return check_range


def require_single(arguments: ArgumentCollection) -> None:
    """Refuse a group of flags of which none is given, or several.

    Raises:
        ValueError: the command line's library says it with the group's name.
    """
    given = [argument.name for argument in arguments.filter_by(value_set=True)]
    if len(given) > 1:
        raise ValueError(f"Given: {' and '.join(given)}. Needed: one of them alone.")
    if not given:
        raise ValueError(f"Needed: one of {', '.join(argument.name for argument in arguments)}.")


def read_each(read: Callable[[str], Value]) -> Callable[[Any, Sequence[Token]], tuple[Value, ...]]:
    """Return a converter that reads each word of a flag."""
    return lambda _type, tokens: tuple(read(token.value) for token in tokens)


def read_last(read: Callable[[str], Value]) -> Callable[[Any, Sequence[Token]], Value]:
    """Return a converter of a flag of one word; of a flag that stands twice the last counts."""
    return lambda _type, tokens: read(tokens[-1].value)


def split_names(text: str) -> tuple[str, ...]:
    """Return names between commas, each once."""
    return tuple(dict.fromkeys(part for part in text.split(",") if part))


def choose_size(*, quick: bool, full: bool) -> SizeName:
    """Return the size that --quick and --full say."""
    if quick:
        return "quick"
    return "full" if full else "default"


EXCLUSIVE = MutuallyExclusive()  # type: ignore[no-untyped-call]  # of a group: one flag alone may be given

# 1.5 is refused, not rounded
Whole = Annotated[int, Parameter(converter=read_last(int), metavar="N")]
Names = Annotated[
    tuple[str, ...], Parameter(converter=read_last(split_names), metavar="NAME,...", n_tokens=1)
]
Hours = Annotated[
    float, Parameter(metavar="H", validator=require_range(1e-9, 1e9, "hours above 0"))
]
EnvironmentName = Annotated[str, Parameter(name="--env", metavar="NAME")]
Name = Annotated[str, Parameter(metavar="NAME")]
RunFolder = Annotated[Path, Parameter(metavar="DIR")]
Share = Annotated[float, Parameter(metavar="SHARE", validator=require_range(0.001, 1))]
Price = Annotated[
    float, Parameter(metavar="USD_PER_HOUR", validator=require_range(*PRICE_LIMITS, "USD an hour"))
]
