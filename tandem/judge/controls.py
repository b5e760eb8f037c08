"""All controls of a run: may anything be concluded from it, and what limits that.

Invariant: every check is there once, whether it could be done or not; a check that failed voids the run, one that
cautions says what the verdict leaves out; rounds that are marked are in no figure of the others.
"""

from __future__ import annotations

from typing import Literal

from tandem.bench.request_table import RequestTable
from tandem.judge import run_checks
from tandem.judge.aa_control import check_aa_control
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import CheckFinding, ControlCheck, RunControls
from tandem.judge.time_effects import ArmTimeline, check_drift, check_order

_CheckName = Literal[
    "baseline against itself", "drift", "order", "warm-up", "client load", "placement", "start", "errors"
]  # fmt: skip
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


def check_controls(table: RequestTable) -> RunControls:
    """Return every check of a run, its noise floors and the rounds that do not count.

    Raises:
        BenchError: rounds.jsonl cannot be read.
    """
    client_finding, bottlenecks = run_checks.check_client_load(table)
    pairing = RequestPairing(table, RunControls(marked=bottlenecks).marked_rounds)
    aa_finding, floors = check_aa_control(pairing)
    timeline = ArmTimeline.from_requests(table, pairing.row_mask())
    findings: dict[_CheckName, CheckFinding] = {
        "baseline against itself": aa_finding,
        "drift": check_drift(timeline),
        "order": check_order(table, timeline),
        "warm-up": run_checks.check_warm_up(table, timeline),
        "client load": client_finding,
        "placement": run_checks.check_placement(table),
        "start": run_checks.check_starts(pairing),
        "errors": run_checks.check_errors(table),
    }
    limits = [_LIMITS.get((name, result)) for name, (result, _) in findings.items()]
    return RunControls(
        checks=tuple(
            ControlCheck(name=name, result=result, sentence=sentence) for name, (result, sentence) in findings.items()
        ),
        floors=floors,
        marked=bottlenecks,
        cautions=tuple(limit for limit in limits if limit is not None),
        void=tuple(sentence for result, sentence in findings.values() if result == "failed"),
    )
