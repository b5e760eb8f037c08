"""A variant's verdict in sentences, from cells and shares that a test states."""

from observed import MARGIN, Asked, observed

from tandem.bench.plan.schedule import LoadLevel
from tandem.judge.headline_facts import HeadlineFacts
from tandem.judge.pairs import RequestPairing
from tandem.judge.schema import (
    AttainmentVerdict,
    CellVerdict,
    LoadVerdict,
    RatioEstimate,
    RunControls,
)
from tandem.judge.verdict_sentence import write_sentences

C4 = LoadLevel(concurrency=4)


def cell(class_, word, ratio, load=C4):
    return CellVerdict(
        variant="spec",
        class_=class_,
        load=load,
        metric="e2e_ms",
        prompts=12,
        rounds=6,
        speed_up=RatioEstimate(value=ratio, low=0.9 * ratio, high=1.1 * ratio),
        p=0.001,
        verdict=word,
        why="as the test says",
    )


def write(finding, cells, overall, attainment=()):
    facts = HeadlineFacts(
        pairing=RequestPairing(observed([Asked(arm="base"), Asked(arm="spec")])),
        variant="spec",
        cells=tuple(cells),
        loads=tuple(LoadVerdict(deciding=overall_cell) for overall_cell in overall),
        attainment=attainment,
        controls=RunControls(),
        equality=None,
        margin=MARGIN,
        quality=(),
    )
    return write_sentences(facts, finding)


def test_of_many_loads_four_are_told_and_the_rest_counted():
    cells = [cell("a", "faster", 2.0, LoadLevel(concurrency=number)) for number in range(1, 8)]
    sentences = write("faster", cells, cells)
    assert "at concurrency 4, spec is 2.00 times" in sentences
    assert "at concurrency 5" not in sentences
    assert "The table has 3 more loads." in sentences


def test_of_many_classes_three_are_named_and_the_rest_counted():
    cells = [cell(name, "slower", 0.5) for name in "abcdef"]
    cells.append(cell("g", "same", 1.0))
    sentences = write("slower", cells, [cell("all", "slower", 0.55)])
    assert "slower in a, b, c and 3 more classes (2.0 times)" in sentences


def test_fewer_requests_within_the_limits_are_told_in_points():
    overall = cell("all", "faster", 2.0)
    row = AttainmentVerdict(
        variant="spec",
        load=C4,
        prompts=12,
        baseline=0.90,
        measured=0.78,
        difference=-0.12,
        low=-0.19,
        high=-0.05,
        verdict="fewer",
        why="as the test says",
    )
    sentences = write("faster", [overall], [overall], (row,))
    assert "for 78% of requests, base for 90%: 12 points fewer (5 to 19)." in sentences
