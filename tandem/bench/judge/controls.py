"""All controls of a run: may anything be concluded from it, and what limits that.

Invariant: every check is there once, whether it could be done or not; a check that failed voids the run, one that
cautions says what the verdict leaves out; rounds that are marked are in no figure of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tandem.bench.judge import conditions
from tandem.bench.judge.cells import counted_rounds
from tandem.bench.judge.course import Course, drift, order
from tandem.bench.judge.form import Check, Controls
from tandem.bench.judge.itself import against_itself
from tandem.bench.judge.observations import Observations
from tandem.bench.judge.pairs import Grouped

_LIMITS = {
    ("baseline against itself", "absent"): "there is no noise floor: a small difference may be noise that no interval "
    "knows of",
    ("drift", "caution"): "the arms drifted apart while the run went on: a later run may find another speed-up",
    ("order", "caution"): "who is asked first matters: of classes that were asked in one order, it is in the speed-up",
    ("warm-up", "caution"): "figures of the first round may be those of a cold server",
    ("client load", "caution"): "rounds in which the client was the bottleneck are in no figure",
    (
        "placement",
        "caution",
    ): "the interval leaves out how halves differ: swap the servers, and say so with --placement",
    ("errors", "caution"): "requests failed, and what failed is in no time",
}
"""What a verdict leaves out, by check and result."""


def controls(seen: Observations) -> Controls:
    """Return every check of a run, its noise floors and the rounds that do not count.

    Raises:
        BenchError: rounds.jsonl cannot be read.
    """
    client, marked = conditions.marked(seen)
    grouped = Grouped(seen, counted_rounds(seen, Controls(marked=marked)))
    itself, floors = against_itself(grouped)
    course = Course.of(seen, grouped.rows())
    checks = (
        itself, drift(course), order(seen, course), conditions.warm_up(seen, course), client,
        conditions.placement(seen), conditions.start(grouped), conditions.errors(seen),
    )  # fmt: skip
    return Controls(
        checks=checks, floors=floors, marked=marked, cautions=tuple(_cautions(checks)),
        void=tuple(check.sentence for check in checks if check.result == "failed"),
    )  # fmt: skip


def _cautions(checks: Iterable[Check]) -> Iterator[str]:
    for check in checks:
        limit = _LIMITS.get((check.name, check.result))
        if limit is not None:
            yield limit
