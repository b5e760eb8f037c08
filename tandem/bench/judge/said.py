"""The sentence of a headline, as a manager reads it.

Invariant: it says no more than the cells it is made of; a range is from the lowest to the highest end of their
intervals; what is left open is named too.
"""

from __future__ import annotations

from collections.abc import Sequence

from tandem.bench.judge.form import Cell
from tandem.bench.judge.words import load, short

MOST = 4  # classes that a sentence names; the rest are counted
_OPPOSED = 2  # reasons of mixed classes that it has
_FINE, _TENTHS, _WHOLE = 0.2, 1.0, 10.0


def label(cell: Cell) -> str:
    """Return the class and load of a cell."""
    return f"{cell.class_} at {load(cell.load)}"


def compared(variant: str, baseline: str, parts: Sequence[Sequence[Cell]], margin: float) -> str:
    """Return how the classes of a variant compare, without an end.

    Args:
        variant, baseline: names of arms.
        parts: cells that are faster, slower, the same, mixed and open.
        margin: within which `the same` lies.
    """
    *called, same, mixed, open_ = parts
    one_load = len({cell.load for part in parts for cell in part}) == 1
    told = [(f"{_prompts(part, one_load=one_load)} {_range(part)} times as fast", "") for part in called if part]
    if same:
        told.append((f"{_prompts(same, one_load=one_load)} as fast", f" (to within {100 * margin:g} %)"))
    for part in ([cell for cell in mixed if is_faster(cell)], [cell for cell in mixed if not is_faster(cell)]):
        if part:
            by_median = f"{_prompts(part, one_load=one_load)} {_range(part)} times as fast"
            told.append((by_median, f" by the median, but {_opposed(part)}"))
    if not told:
        return f"There is no evidence whether {short(variant)} is faster or slower than {short(baseline)}"
    (first, aside), *others = told
    answers = [f"{first} as {short(baseline)}{aside}", *map("".join, others)]
    beside = f"; for {_prompts(open_, one_load=one_load)} there is no evidence" if open_ else ""
    return f"{short(variant)} answers {_joined(answers)}{beside}"


def is_faster(cell: Cell) -> bool:
    """Return whether the median of a cell is better than the baseline's, called or not."""
    return cell.speed_up is not None and cell.speed_up.value > 1


def _opposed(cells: Sequence[Cell]) -> str:
    """Return what means and percentiles say against the medians, the first few where there are several."""
    reasons = {cell.opposition: cell.class_ for cell in cells if cell.opposition}
    several = len(reasons) > 1
    told = [f"of {short(class_)} {reason}" if several else reason for reason, class_ in reasons.items()]
    return " and ".join(told[:_OPPOSED])


def listed(names: Sequence[str]) -> str:
    """Return the first few of many names, and how many more there are."""
    shown = [short(name) for name in names]
    if len(shown) > MOST:
        shown = [*shown[: MOST - 1], f"{len(shown) - MOST + 1:,} more"]
    return _joined(shown)


def _joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _prompts(cells: Sequence[Cell], *, one_load: bool) -> str:
    return f"{listed([cell.class_ if one_load else f'{cell.class_} ({load(cell.load)})' for cell in cells])} prompts"


def _range(cells: Sequence[Cell]) -> str:
    known = [cell.speed_up for cell in cells if cell.speed_up]
    ends = [_short(min(one.low or one.value for one in known)), _short(max(one.high or one.value for one in known))]
    return " to ".join(dict.fromkeys(ends))


def _short(value: float) -> str:
    """Return a ratio with as many digits as a sentence bears."""
    if value >= _WHOLE:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < _TENTHS or abs(value - 1) < _FINE else f"{value:.1f}"
