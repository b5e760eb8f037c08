"""The facts of a variant, from requests and cells that a test states."""

import pytest
from observed import EQUAL, MARGIN, Asked, observed

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.headline_facts import HeadlineFacts
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import CellVerdict, RunControls


def gather(requests, cells=()):
    return HeadlineFacts(
        pairing=RequestPairing(observed(requests)),
        variant="spec",
        cells=tuple(cells),
        loads=(),
        attainment=(),
        controls=RunControls(),
        equality=EQUAL[0],
        margin=MARGIN,
        quality=(),
    )


def test_the_number_of_starts_is_of_the_arm_with_fewest():
    starts = [("base", "b0"), ("base", "b1"), ("base", "b2"), ("spec", "s0"), ("spec", "s1")]
    requests = [
        Asked(arm=arm, start=start, round=int(start[-1]), prompt=prompt)
        for arm, start in starts
        for prompt in ("p0", "p1")
    ]
    requests.append(Asked(arm="spec", start=None, round=2))
    assert gather(requests).start_count == 2


@pytest.mark.parametrize(("refused_count", "output"), [(2, "the same"), (3, "not shown")])
def test_equal_output_needs_half_its_answers_accepted(refused_count, output):
    requests = [Asked(arm="base", prompt=f"p{number}") for number in range(4)]
    requests += [
        Asked(arm="spec", prompt=f"p{number}", content="loop" if number < refused_count else "ok")
        for number in range(4)
    ]
    assert gather(requests).output == output


def test_one_class_within_a_start_limits_the_verdict_to_it():
    scopes = {"a": "across-starts", "b": "one-start"}
    cells = [
        CellVerdict(
            variant="spec",
            class_=class_,
            load=LoadLevel(concurrency=4),
            metric="e2e_ms",
            prompts=12,
            rounds=6,
            p=0.001,
            evidence=scope,
            verdict="faster",
            why="",
        )
        for class_, scope in scopes.items()
    ]
    requests = [Asked(arm="base"), Asked(arm="spec")]
    assert gather(requests, cells[:1]).evidence == "across-starts"
    assert gather(requests, cells).evidence == "one-start"
