"""Nothing is lost and nothing is sent twice, whatever becomes of a request."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from doubles.fault_proxy.rules import (
    ACCESS_DENIED_FAULT,
    INTERNAL_ERROR_FAULT,
    THROTTLING_FAULT,
    AnswerCutFault,
    AnswerLossFault,
    DropFault,
    FaultRule,
    StatusFault,
)
from publishing import QUICK, minute_now, read

from tandem.publish import Delays, PublishError, Retries, batches

pytestmark = pytest.mark.endpoint
FEW = Retries(tries=2, first_s=0.001, most_s=0.001)


def put(fault, **when):
    return FaultRule(fault=fault, operation="PutMetricData", **when)


def whole(published):
    """Whether CloudWatch holds what it must."""
    assert published.counts() == published.expected()
    return True


@pytest.mark.parametrize("code", ["ThrottlingException", "Throttling", "RequestLimitExceeded"])
def test_a_throttled_batch_is_sent_again_at_once(published, proxy, code):
    proxy.use(put(StatusFault(status=400, code=code), every=2, times=5))

    report = published.publish()

    assert (report.whole, proxy.fault_counts, proxy.requests("GetMetricData")) == (True, (5,), ())
    assert whole(published)


@pytest.mark.parametrize(
    "fault", [AnswerLossFault(), INTERNAL_ERROR_FAULT, DropFault(), StatusFault(status=503, code="ServiceUnavailable")]
)
def test_a_batch_that_was_not_answered_is_read_back_and_lands_once(published, proxy, fault):
    proxy.use(put(fault, skip=1, every=2, times=2))

    report = published.publish()

    assert (report.whole, report.rounds, proxy.fault_counts) == (True, [0, 1], (2,))
    assert whole(published)


def test_a_done_batch_whose_answer_was_lost_is_not_sent_again(published, proxy):
    proxy.use(put(AnswerLossFault(), times=1))

    published.publish()

    assert len(proxy.requests("PutMetricData")) == 6 + 1  # three classes of two rounds, and the gauge


def test_unanswered_batches_of_rounds_that_share_a_minute_are_told_apart(published, proxy):
    published.made(number=4, step_s=0)
    proxy.use(put(AnswerLossFault(), every=4), put(INTERNAL_ERROR_FAULT, skip=1, every=3, times=2))

    report = published.publish()

    assert report.whole
    assert whole(published)


def test_faults_of_every_kind_together_change_no_count(published, proxy):
    published.made(number=5, step_s=30, seed=7)
    proxy.use(
        put(THROTTLING_FAULT, probability=0.2, seed=1),
        put(AnswerLossFault(), probability=0.2, seed=2, times=4),
        put(INTERNAL_ERROR_FAULT, probability=0.2, seed=3, times=4),
        put(AnswerCutFault(), probability=0.2, seed=4, times=4),
        FaultRule(fault=INTERNAL_ERROR_FAULT, service="s3", probability=0.1, seed=5, times=6),
        FaultRule(fault=AnswerLossFault(), operation="PutObject", probability=0.2, seed=6, times=6),
        FaultRule(fault=THROTTLING_FAULT, operation="GetMetricData", probability=0.3, seed=7, times=5),
    )

    for _ in range(10):
        try:
            if published.publish().whole:
                break
        except PublishError:
            continue

    assert all(proxy.fault_counts[:3])
    assert whole(published)


def test_a_batch_that_cloudwatch_does_not_show_yet_is_left_in_doubt_and_named(published, proxy):
    published.settings = dataclasses.replace(QUICK, delays=dataclasses.replace(QUICK.delays, recent_s=900.0))
    proxy.use(put(INTERNAL_ERROR_FAULT, times=1))

    report = published.publish()

    assert len(report.left) == 1
    assert "batch 1 of 3 of round 0 is in doubt" in report.left[0]
    assert "`tandem bench publish OUT --env X` settles it" in report.left[0]


def test_a_batch_in_doubt_is_sent_again_once_cloudwatch_had_shown_it(published, proxy):
    published.settings = dataclasses.replace(QUICK, delays=dataclasses.replace(QUICK.delays, recent_s=900.0))
    proxy.use(put(INTERNAL_ERROR_FAULT, times=1))
    published.publish()
    published.settings = QUICK

    report = published.publish()

    assert (report.whole, report.sent) == (True, 1)
    assert whole(published)


def test_values_of_somebody_else_leave_a_batch_unsettled_and_told_once(published, proxy):
    made = batches(next(published.made_of.rounds()).data)
    foreign = {"MetricData": [{**part.as_datum(), "Values": [1.0], "Counts": [3.0]} for part in made[0].parts]}
    published.endpoint.client("cloudwatch").put_metric_data(Namespace=published.run.namespace, **foreign)
    proxy.use(put(INTERNAL_ERROR_FAULT, times=1))

    first, second = published.publish(), published.publish()

    assert "which this run alone does not explain" in first.lost[0]
    assert (first.whole, second.whole) == (False, True)


def test_after_three_unanswered_batches_in_turn_nothing_more_is_sent(published, proxy):
    proxy.use(put(INTERNAL_ERROR_FAULT))

    with pytest.raises(PublishError, match="did not say of 3 batches in turn"):
        published.publish()

    assert len(proxy.requests("PutMetricData")) == 3


def test_a_batch_that_was_throttled_at_every_try_waits_for_nothing_later(published, proxy):
    published.settings = dataclasses.replace(QUICK, retries=FEW)
    proxy.use(put(THROTTLING_FAULT))
    with pytest.raises(PublishError, match="PutMetricData failed at every try"):
        published.publish()
    proxy.use()
    proxy.forget()

    report = published.publish()

    assert (report.whole, proxy.requests("GetMetricData")) == (True, ())
    assert whole(published)


def test_a_journal_that_s3_did_not_take_keeps_the_batch_from_being_sent(published, proxy):
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutObject", path="*/published/*"))
    with pytest.raises(PublishError, match="PutObject is denied"):
        published.publish()

    assert proxy.requests("PutMetricData") == ()


def test_the_gauge_of_unpublished_rounds_is_0_when_all_were_sent(published):
    published.publish(now=lambda: published.made_of.first_s + 600.0)

    arms = [(("Experiment", "post"), ("Variant", arm), ("PromptClass", "all"), ("Concurrency", "all"))
            for arm in published.run.variants]  # fmt: skip
    keys = [("unpublished_rounds", dimensions, published.made_of.first_s + 600) for dimensions in arms]
    namespace = published.run.namespace
    assert list(read(published.endpoint, namespace, keys).values()) == [1.0, 1.0]
    assert list(read(published.endpoint, namespace, keys, "Maximum").values()) == [0.0, 0.0]


def test_the_gauge_counts_earlier_rounds_that_were_not_sent(published, proxy):
    published.made(number=3)
    proxy.use(put(INTERNAL_ERROR_FAULT, times=1))
    published.settings = dataclasses.replace(QUICK, delays=dataclasses.replace(QUICK.delays, recent_s=900.0))

    published.publish(now=lambda: published.made_of.first_s + 600.0)

    cell = (("Experiment", "post"), ("Variant", "baseline"), ("PromptClass", "all"), ("Concurrency", "all"))
    key = ("unpublished_rounds", cell, published.made_of.first_s + 600)
    assert read(published.endpoint, published.run.namespace, [key], "Maximum") == {key: 1.0}


def test_what_the_time_does_not_allow_is_left_to_a_later_publish(published, proxy):
    with published.publisher() as publisher:
        publisher.until_s = 0.0
        for one in published.made_of.rounds():
            publisher.publish(one)
        left = publisher.report.left

    assert (len(left), proxy.requests("PutMetricData")) == (2, ())
    assert published.publish().whole
    assert whole(published)


def test_a_throttled_batch_is_not_waited_for_beyond_the_time_there_is(published, proxy):
    proxy.use(put(THROTTLING_FAULT))
    publisher = published.publisher(sleep=lambda _: setattr(publisher, "until_s", 0.0))
    with publisher, pytest.raises(PublishError, match="PutMetricData failed at every try"):
        publisher.publish(next(published.made_of.rounds()))

    assert len(proxy.requests("PutMetricData")) == 2


def test_an_intent_is_written_anew_before_a_try_that_comes_a_minute_later(published, proxy):
    proxy.use(put(THROTTLING_FAULT, times=1))
    clock = [published.made_of.first_s + 600.0]
    published.made(number=1, classes=("chat",))

    published.publish(now=lambda: clock[0], sleep=lambda _: clock.__setitem__(0, clock[0] + 61))

    lines = [json.loads(line) for line in (published.folder / "published.jsonl").read_text().splitlines()]
    assert [line["state"] for line in lines] == ["stored", "intent", "intent", "sent"]


@pytest.mark.parametrize(
    ("age_s", "hours"), [(0, 0.25), (3 * 3600 - 1, 0.25), (3 * 3600, 2), (86400 - 1, 2), (86400, 72)]
)
def test_how_long_cloudwatch_may_hide_what_it_took_follows_the_age_of_the_time(age_s, hours):
    assert Delays().of(age_s) == hours * 3600


def test_a_batch_in_doubt_is_waited_for_as_long_as_it_may_be_hidden(published, proxy):
    published.made(number=1, first_s=minute_now(600))
    published.settings = dataclasses.replace(QUICK, delays=Delays(), patience_s=960.0, look_s=2.0)
    proxy.use(put(INTERNAL_ERROR_FAULT, times=1))
    clock, waits = [float(minute_now())], []

    def sleep(wait_s):
        waits.append(wait_s)
        clock[0] += wait_s

    report = published.publish(now=lambda: clock[0], sleep=sleep)

    assert report.whole
    assert 900 <= sum(waits) <= 930
    assert max(waits) == 30
    assert whole(published)


def test_a_batch_that_may_be_hidden_for_hours_is_looked_for_briefly_and_left(published, proxy):
    published.made(number=1, first_s=minute_now(5 * 3600))
    published.settings = dataclasses.replace(QUICK, delays=Delays(), patience_s=960.0, glance_s=30.0, look_s=2.0)
    proxy.use(put(INTERNAL_ERROR_FAULT, times=1))
    clock, waits = [time.time()], []

    def sleep(wait_s):
        waits.append(wait_s)
        clock[0] += wait_s

    report = published.publish(now=lambda: clock[0], sleep=sleep)

    assert (sum(waits), len(report.left)) == (pytest.approx(30.0, abs=0.1), 1)
