"""Which requests charts use."""

from __future__ import annotations

import example_verdict as example
from observed import Asked, observed

from tandem.judge.schema import BottleneckRound, RunControls
from tandem.report.sampling import mask_good_requests


def test_charts_use_the_requests_of_the_verdict():
    rows = [
        Asked(),
        Asked(arm="spec"),
        Asked(error="closed"),
        Asked(round=1),
        Asked(arm="spec", round=1),
    ]
    control_round = [Asked(round=2), Asked(arm="base#2", round=2)]
    table = observed([*rows, *control_round])
    controls = RunControls(marked=(BottleneckRound(round=1, sentence="the client was busy"),))
    good = mask_good_requests(example.nothing(table, controls=controls), table)
    assert good.tolist() == [True, True, False, False, False, False, False]
