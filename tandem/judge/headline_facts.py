"""The facts behind the verdict on a variant: words, lengths, failures and outputs.

Invariant: the deciding metric is the time that a user waits (DECIDING_METRIC). Where the answers of
the two arms have other lengths, that time is not of the same work, so the time per output token
decides in its place. Where nobody counted tokens either, nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from tandem.bench.figures.request_table import UNKNOWN
from tandem.bench.plan.schedule import LoadLevel
from tandem.judge import comparability, schema
from tandem.judge.decision import compare_lengths
from tandem.judge.equal_length import describe_forced_lengths
from tandem.judge.interval import estimate_log_ratio
from tandem.judge.pairs import DECIDING_METRIC, LENGTH_METRIC, RequestPairing
from tandem.judge.quantile_curve import FEWEST_PROMPTS
from tandem.judge.schema import (
    LEVEL,
    AttainmentVerdict,
    CellVerdict,
    CellWord,
    LoadVerdict,
    OutputFinding,
    RatioEstimate,
)
from tandem.judge.text_format import format_short_range, format_short_ratio, shorten_text

TPOT_METRIC = "tpot_ms"
"""Decides where answers have other lengths."""

Place = tuple[str | None, LoadLevel]
"""A class at a load; None is all classes, because a suite may name a class `all`."""


@dataclass(frozen=True)
class HeadlineFacts:
    """Facts about one variant.

    Args:
        pairing: the rounds that count.
        variant: its arm.
        cells: of this variant.
        loads: of this variant, all classes together.
        attainment: of this variant; empty without goodput limits.
        controls: what voids the run, and what limits it.
        equality: of its outputs; None where they were not compared.
        margin: a speed-up within it is `same`; a ratio of lengths within it is no difference.
        quality: of the tasks that the arms were asked.
    """

    pairing: RequestPairing
    variant: str
    cells: tuple[CellVerdict, ...]
    loads: tuple[LoadVerdict, ...]
    attainment: tuple[AttainmentVerdict, ...]
    controls: schema.RunControls
    equality: schema.OutputEquality | None
    margin: float
    quality: tuple[schema.TaskQuality, ...]

    @property
    def arms(self) -> tuple[str, str]:
        """The baseline and the variant."""
        return self.pairing.table.baseline, self.variant

    @property
    def names(self) -> tuple[str, str]:
        """The baseline and the variant, short enough for a sentence."""
        baseline, variant = self.arms
        return shorten_text(baseline), shorten_text(variant)

    @property
    def request_count(self) -> int:
        """Requests of the variant in the rounds that count."""
        rows = self.pairing.row_mask() & self.pairing.table.arm_mask(self.variant)
        return int(rows.sum())

    @property
    def speculates(self) -> bool:
        """Whether the manifest says that one of the two arms speculates."""
        arms = self.pairing.table.run.arms
        return any(arm.speculates for arm in arms if arm.name in self.arms)

    @property
    def may_miss_limits(self) -> bool:
        """Whether the variant kept the limits for fewer requests, and may miss far more."""
        return any(
            row.verdict == "no evidence"
            and row.difference is not None
            and row.low is not None
            and row.difference < 0
            and row.low < -self.margin
            for row in self.attainment
        )

    @cached_property
    def forced_reasons(self) -> tuple[str, ...]:
        """How answers were forced to equal lengths; empty where the model ended them."""
        rows = self.pairing.row_mask()
        return tuple(describe_forced_lengths(self.pairing.table, rows, self.arms))

    @cached_property
    def cell_failures(self) -> comparability.CellFailures:
        """Requests of both arms in each class, and how many failed."""
        return comparability.count_failures(self.pairing, *self.arms)

    @property
    def failures(self) -> comparability.FailureCounts:
        """Requests of both arms, and how many failed."""
        return self.cell_failures.count()

    @cached_property
    def survivors_reason(self) -> str:
        """Why only survivors could be compared; empty where all could."""
        bias = self.cell_failures.find_bias(self.pairing.known_cells())
        if bias is None:
            return ""
        place = ""
        if bias.cell is not None:
            place = f" of class {self.pairing.cell_place(bias.cell)[0]}"
        return f"one failed more requests{place}: {bias.failures.describe(*self.arms)}"

    @cached_property
    def invalid_reason(self) -> str:
        """Why no speed is worth anything (neither arm gives text); empty otherwise."""
        return comparability.explain_invalidity(self.pairing, *self.arms)

    @cached_property
    def content_counts(self) -> list[comparability.ContentCounts]:
        """Answers that the content check refused, of the variant and of the baseline."""
        return [comparability.count_content(self.pairing, arm) for arm in self.arms[::-1]]

    @cached_property
    def metric(self) -> str:
        """Name of the deciding metric."""
        return TPOT_METRIC if self.different_lengths else DECIDING_METRIC

    @cached_property
    def deciding_cells(self) -> list[CellVerdict]:
        """Cells of the deciding metric."""
        return [cell for cell in self.cells if cell.metric == self.metric]

    @cached_property
    def cells_with_interval(self) -> list[CellVerdict]:
        """Cells of the deciding metric that have an interval."""
        return [cell for cell in self.deciding_cells if cell.p is not None]

    @cached_property
    def words(self) -> dict[CellWord, list[CellVerdict]]:
        """Cells of the deciding metric by their word."""
        words: dict[CellWord, list[CellVerdict]] = {word: [] for word in get_args(CellWord)}
        for cell in self.deciding_cells:
            words[cell.verdict].append(cell)
        return words

    @property
    def overall_words(self) -> set[CellWord]:
        """Words over all classes, one a load; time per output token is not tested there."""
        if self.metric == DECIDING_METRIC:
            return {load.deciding.verdict for load in self.loads}
        return set()

    @property
    def evidence(self) -> schema.EvidenceScope:
        """Scope of the verdict: across starts if every judged class is, else one start."""
        judged_cells = list(self.cells_with_interval)
        if self.metric == DECIDING_METRIC:
            judged_cells += [load.deciding for load in self.loads if load.deciding.p is not None]
        scopes = {cell.evidence for cell in judged_cells}
        return "across-starts" if scopes == {"across-starts"} else "one-start"

    @property
    def start_count(self) -> int | None:
        """Starts of the arm with the fewest; None where the verdict covers their differences."""
        if self.evidence == "across-starts":
            return None
        table = self.pairing.table
        counts = []
        for arm in self.arms:
            starts = table.start[self.pairing.row_mask() & table.arm_mask(arm)]
            counts.append(len(np.unique(starts[starts != UNKNOWN])))
        return min(counts)

    @cached_property
    def length_ratios(self) -> dict[Place, RatioEstimate]:
        """Tokens of the variant's answers as a ratio of the baseline's, where servers counted them.

        There is one for each class at each load, and one for all classes of a load.
        """
        code_groups: dict[Place, list[int]] = {}
        for code in self.pairing.known_cells():
            class_, load = self.pairing.cell_place(code)
            code_groups[class_, load] = [code]
            code_groups.setdefault((None, load), []).append(code)

        ratios = {}
        level = 1 - (1 - LEVEL) / max(len(code_groups), 1)
        for place, codes in code_groups.items():
            pairs = self.pairing.join_cells(self.arms, codes, LENGTH_METRIC)
            # above 1 where the variant's answers are longer
            estimate = estimate_log_ratio(-pairs.logs, level=level)
            if estimate is not None:
                ratios[place] = estimate.convert()
        return ratios

    @cached_property
    def different_lengths(self) -> dict[Place, RatioEstimate]:
        """Those of `length_ratios` that lie wholly beyond the margin."""
        ratios = self.length_ratios.items()
        return {
            place: ratio
            for place, ratio in ratios
            if compare_lengths(ratio, self.margin) != "alike"
        }

    @cached_property
    def length_reason(self) -> str:
        """Why answers of other lengths cannot be compared; empty where they can."""
        _, variant = self.names
        if self.different_lengths and not self.cells_with_interval:
            prompts_text = f"{FEWEST_PROMPTS} prompts with a time per output token"
            return f"{self.describe_lengths()}, and no class has {prompts_text}"
        lengths = self.equality.lengths if self.equality is not None else None
        if (
            self.length_ratios
            or lengths is None
            or compare_lengths(lengths, self.margin) == "alike"
        ):
            return ""
        times = format_short_ratio(lengths.value)
        return (
            f"answers of {variant} are {times} times as long,"
            " and the servers counted no output tokens"
        )

    def describe_lengths(self) -> str:
        """Return how long the variant's answers are where they have another length."""
        _, variant = self.names
        overall_ratios = [
            ratio for (class_, _), ratio in self.different_lengths.items() if class_ is None
        ]
        ratios = overall_ratios or list(self.different_lengths.values())
        times = format_short_range([ratio.value for ratio in ratios])
        place = "" if overall_ratios else " in some classes"
        return f"answers of {variant} are {times} times as long{place}"

    @cached_property
    def output(self) -> OutputFinding:
        """Whether outputs are shown to be the baseline's: same text, lengths, nothing broken.

        A task with a worse quality is an other output; the same quality of every task makes up for
        other texts alone.
        """
        equality = self.equality
        words = {task.word for task in self.quality}
        if self.different_lengths or "worse" in words:
            return "not the same"
        has_quality = bool(words) and words <= {"same", "better"}
        if equality is None:
            return "same quality" if has_quality else "not shown"
        if any(self._list_alterations(equality, has_quality=has_quality)):
            return "not the same"
        has_mostly_refusals = any(
            2 * counts.broken.total() > counts.answer_count for counts in self.content_counts
        )
        if has_mostly_refusals:
            return "not shown"
        if equality.result == "the same":
            return "the same"
        return "same quality" if has_quality else "not shown"

    def _list_alterations(
        self, equality: schema.OutputEquality, *, has_quality: bool
    ) -> Iterator[bool]:
        """Yield whether texts, lengths and broken answers show other outputs."""
        yield equality.result == "differs" and not has_quality
        if equality.lengths is not None:
            yield compare_lengths(equality.lengths, self.margin) != "alike"
        if equality.garbage is not None:
            garbage = equality.garbage
            other = equality.garbage_of_baseline
            other_counts = (other.n, other.of) if other else (0, garbage.of)
            yield comparability.is_more_frequent(garbage.n, garbage.of, *other_counts)
