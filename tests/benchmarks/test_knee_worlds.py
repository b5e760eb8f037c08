"""One virtual run of the cliff: its intervals hold what docs/knee.md prints as the truth."""

from __future__ import annotations

from knee import WORLDS, check_estimate, search_knees


def test_virtual_run_finds_the_knees_of_the_cliff() -> None:
    finding, _ = search_knees(WORLDS[0], 0)

    knees = [arm.rate_per_s for arm in finding.arms]
    truths = (3.78, 6.50)
    assert [check_estimate(knee, truth) for knee, truth in zip(knees, truths, strict=True)] == [
        (True, True),
        (True, True),
    ]
    assert check_estimate(finding.ratios[0].ratio, truths[1] / truths[0]) == (True, True)
