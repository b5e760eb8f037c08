"""The sentence of a headline, as a manager reads it.

Invariant: it says no more than the cells it is made of; a range is from the lowest to the highest end of their
intervals; what is left open is named too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tandem.judge.schema import CellVerdict, CellWord
from tandem.judge.text_format import format_load, format_short_ratio, shorten_text

MAX_CLASSES = 4  # classes that a sentence names; the rest are counted
_DIFFERENCES: tuple[CellWord, ...] = ("faster", "slower")
_MAX_OPPOSITIONS = 2  # reasons of mixed classes that it has


def format_cell(cell: CellVerdict) -> str:
    """Return the class and load of a cell."""
    return f"{cell.class_} at {format_load(cell.load)}"


def describe_comparison(
    variant: str, baseline: str, cells: Mapping[CellWord, Sequence[CellVerdict]], margin: float
) -> str:
    """Return how the classes of a variant compare, without an end.

    Args:
        variant, baseline: names of arms.
        cells: by their word, all five of them.
        margin: within which `the same` lies.
    """
    has_one_load = len({cell.load for part in cells.values() for cell in part}) == 1

    def name_prompts(part: Sequence[CellVerdict]) -> str:
        names = [cell.class_ if has_one_load else f"{cell.class_} ({format_load(cell.load)})" for cell in part]
        return f"{join_names(names)} prompts"

    phrases = [
        (f"{name_prompts(cells[word])} {_format_range(cells[word])} times as fast", "")
        for word in _DIFFERENCES
        if cells[word]
    ]
    if cells["same"]:
        phrases.append((f"{name_prompts(cells['same'])} as fast", f" (to within {100 * margin:g} %)"))
    for better in (True, False):
        part = [cell for cell in cells["mixed"] if is_faster(cell) == better]
        if part:
            by_median = f"{name_prompts(part)} {_format_range(part)} times as fast"
            phrases.append((by_median, f" by the median, but {_describe_opposition(part)}"))
    if not phrases:
        return f"There is no evidence whether {shorten_text(variant)} is faster or slower than {shorten_text(baseline)}"
    (first_phrase, first_suffix), *more_phrases = phrases
    answers = [f"{first_phrase} as {shorten_text(baseline)}{first_suffix}", *map("".join, more_phrases)]
    open_cells = cells["no evidence"]
    open_text = f"; for {name_prompts(open_cells)} there is no evidence" if open_cells else ""
    return f"{shorten_text(variant)} answers {_join_parts(answers)}{open_text}"


def is_faster(cell: CellVerdict) -> bool:
    """Return whether the median of a cell is better than the baseline's, called or not."""
    return cell.speed_up is not None and cell.speed_up.value > 1


def _describe_opposition(cells: Sequence[CellVerdict]) -> str:
    """Return what means and percentiles say against the medians, the first few where there are several."""
    reasons = {cell.opposition: cell.class_ for cell in cells if cell.opposition}
    has_several = len(reasons) > 1
    phrases = [f"of {shorten_text(class_)} {reason}" if has_several else reason for reason, class_ in reasons.items()]
    return " and ".join(phrases[:_MAX_OPPOSITIONS])


def join_names(names: Sequence[str]) -> str:
    """Return the first few of many names, and how many more there are."""
    short_names = [shorten_text(name) for name in names]
    if len(short_names) > MAX_CLASSES:
        short_names = [*short_names[: MAX_CLASSES - 1], f"{len(short_names) - MAX_CLASSES + 1:,} more"]
    return _join_parts(short_names)


def _join_parts(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _format_range(cells: Sequence[CellVerdict]) -> str:
    ratios = [cell.speed_up for cell in cells if cell.speed_up]
    ends = [
        format_short_ratio(min(ratio.low or ratio.value for ratio in ratios)),
        format_short_ratio(max(ratio.high or ratio.value for ratio in ratios)),
    ]
    return " to ".join(dict.fromkeys(ends))
