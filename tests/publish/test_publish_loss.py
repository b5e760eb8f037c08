"""Nothing is lost, and little is counted twice, whatever becomes of a request or of the process."""

from __future__ import annotations

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    AnswerLossFault,
    DropFault,
    FaultRule,
    StatusFault,
)

from tandem.errors import ExternalError, TandemError

pytestmark = pytest.mark.endpoint


def rule_puts(fault, **when):
    return FaultRule(fault=fault, operation="PutMetricData", **when)


@pytest.mark.parametrize(
    "fault",
    [
        StatusFault(status=400, code="ThrottlingException"),
        DropFault(),
    ],
)
def test_a_request_that_was_not_done_is_sent_again(run, proxy, fault):
    proxy.use(rule_puts(fault, every=2, times=3))
    report = run.publish()
    assert report.is_whole
    assert (report.rounds, proxy.fault_counts) == ([0, 1], (3,))
    assert run.counts() == run.expected()


def test_a_lost_answer_counts_one_batch_twice_and_loses_none(run, proxy):
    proxy.use(rule_puts(AnswerLossFault(), skip=1, times=1))
    assert run.publish().is_whole
    assert (run.lost(), run.duplicates()) == (0, 1)


@pytest.mark.parametrize(
    ("operation", "number", "most_duplicates"),
    [
        ("PutMetricData", 3, 1),
        # the first round's marker
        ("PutObject", 2, 0),
    ],
)
def test_a_kill_loses_nothing(run, proxy, operation, number, most_duplicates):
    run.made(seed=11, gaps=30)

    assert run.kill(proxy, "done", number, operation)
    assert run.publish().is_whole

    assert run.lost() == 0
    assert run.duplicates() <= most_duplicates


def test_a_batch_is_not_sent_again_after_a_fault(run, proxy):
    proxy.use(rule_puts(ACCESS_DENIED_FAULT, skip=2))
    with pytest.raises(ExternalError, match="PutMetricData is denied"):
        run.publish()
    proxy.use()

    assert run.publish().sent == 4
    assert run.counts() == run.expected()


def test_a_cut_line_is_no_batch(run, proxy):
    proxy.use(rule_puts(ACCESS_DENIED_FAULT, skip=2))
    with pytest.raises(ExternalError):
        run.publish()
    path = run.folder / "published.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    proxy.use(rule_puts(ACCESS_DENIED_FAULT, skip=1))
    with pytest.raises(ExternalError):
        run.publish()
    proxy.use()

    assert run.publish().sent == 4
    assert (run.lost(), run.duplicates()) == (0, 1)


def test_records_are_stored_although_cloudwatch_refuses_all(run, proxy):
    proxy.use(rule_puts(ACCESS_DENIED_FAULT))
    for _ in range(2):
        with pytest.raises(ExternalError):
            run.publish()

    assert run.objects() == [
        "manifest.json",
        "records/round-00000.jsonl",
        "records/round-00001.jsonl",
    ]
    assert len(proxy.requests("PutObject", "*/records/*")) == 2


def test_what_is_late_is_left_to_a_later_publish(run, proxy):
    report = run.publish(end_s=0.0)
    assert (len(report.left), proxy.requests("PutMetricData")) == (1, ())
    assert run.publish().is_whole
    assert run.counts() == run.expected()


def test_a_folder_that_cannot_be_written_sends_nothing(run, proxy):
    (run.folder / "published.jsonl").mkdir()
    with pytest.raises(TandemError, match="Is a directory"):
        run.publish()
    assert proxy.requests("PutMetricData") == ()
