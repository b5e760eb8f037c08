"""A publish that is killed and run again leaves exact counts; proofs/ kill it far more often."""

from __future__ import annotations

import pytest
from killed import Moment, killed, start, until_done

pytestmark = pytest.mark.endpoint
MOMENTS = [
    Moment(when="asked", operation="PutMetricData", number=1),
    Moment(when="done", operation="PutMetricData", number=2),
    Moment(when="done", operation="PutObject", number=3),
]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment.operation}-{moment.number}-{moment.when}")
def test_a_publish_killed_in_the_middle_and_run_again_leaves_exact_counts(published, proxy, moment):
    published.made(number=2, step_s=0, seed=11, gaps=30)

    assert killed(published, proxy, moment)
    until_done(published)

    assert published.counts() == published.expected()


def test_two_processes_that_publish_one_folder_at_once_leave_exact_counts(published):
    published.made(number=3, seed=12, gaps=30)

    both = [start(published), start(published)]
    codes = [process.wait(60) for process in both]
    until_done(published)

    assert published.counts() == published.expected()
    assert 0 in codes
