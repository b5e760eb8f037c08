"""A folder, its copies and its journal: who may publish, and what each knows of the others."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
from doubles.fault_proxy.rules import ACCESS_DENIED_FAULT, INTERNAL_ERROR_FAULT, AnswerLossFault, FaultRule
from publishing import QUICK, Made, Published, services

from tandem.publish import CALLS, PublishError, RefusedError

pytestmark = pytest.mark.endpoint
HIDDEN = dataclasses.replace(QUICK, delays=dataclasses.replace(QUICK.delays, recent_s=900.0))


def copied(published, tmp_path):
    """The same folder elsewhere, as it stands now."""
    folder = tmp_path / "copy"
    shutil.copytree(published.folder, folder)
    return published.elsewhere(folder)


def states(published):
    return [json.loads(line)["state"] for line in (published.folder / "published.jsonl").read_text().splitlines()]


def test_a_copy_that_was_made_before_learns_from_s3_what_was_sent(published, tmp_path, proxy):
    copy = copied(published, tmp_path)
    published.publish()
    proxy.forget()

    report = copy.publish()

    assert (report.sent, proxy.requests("PutMetricData")) == (0, ())


def test_a_copy_settles_what_the_original_left_in_doubt(published, tmp_path, proxy):
    copy = copied(published, tmp_path)
    published.settings = HIDDEN
    proxy.use(FaultRule(fault=AnswerLossFault(), operation="PutMetricData", times=1),
              FaultRule(fault=INTERNAL_ERROR_FAULT, operation="PutMetricData", skip=1, times=1))  # fmt: skip
    published.publish()
    copy.settings = QUICK

    report = copy.publish()

    assert (report.whole, copy.counts()) == (True, copy.expected())


def test_the_original_learns_what_a_copy_settled(published, tmp_path, proxy):
    published.settings = HIDDEN
    proxy.use(FaultRule(fault=INTERNAL_ERROR_FAULT, operation="PutMetricData", times=1))
    published.publish()
    copy = copied(published, tmp_path)
    copy.settings = QUICK
    copy.publish()

    report = published.publish()

    assert (report.whole, report.sent, published.counts()) == (True, 0, published.expected())


def test_two_copies_that_publish_at_once_hinder_each_other_and_no_count(published, tmp_path):
    copy = copied(published, tmp_path)
    rounds = tuple(published.made_of.rounds())
    with published.publisher() as one, copy.publisher() as other:
        one.publish(rounds[0])
        with pytest.raises(PublishError, match="another copy of this run's folder is being published"):
            other.publish(rounds[0])
        one.publish(rounds[1])

    assert (copy.publish().whole, copy.counts()) == (True, copy.expected())


def test_a_folder_is_published_by_one_process_at_a_time(published):
    with published.publisher(), pytest.raises(PublishError, match="another process is publishing this folder"):
        published.publish()


def test_a_line_that_was_cut_short_was_followed_by_nothing(published):
    published.publish()
    path = published.folder / "published.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"environment":"e')

    assert published.publish().sent == 0
    assert path.read_bytes() == whole


def test_a_line_that_is_no_line_is_refused_with_its_number(published):
    (published.folder / "published.jsonl").write_text('{"state": "sent"}\n')

    with pytest.raises(RefusedError, match=r"published\.jsonl:1: this is no line of the journal"):
        published.publish()


def test_an_intent_stands_in_the_file_and_in_s3_before_the_request(published, proxy):
    seen = []

    def watch(when, request):
        if (when, request.operation) == ("asked", "PutMetricData"):
            stored = published.endpoint.client("s3").list_objects_v2(
                Bucket=published.bucket, Prefix=f"{published.run.prefix}published/"
            )
            seen.append((states(published)[-1], stored["KeyCount"]))

    proxy.moment_callback = watch
    published.made(number=1)

    published.publish()

    assert seen[:3] == [("intent", 1)] * 3


def test_one_folder_may_be_published_to_two_environments(published):
    other = dataclasses.replace(published, environment=f"{published.environment}b")
    other.made_of = published.made_of

    published.publish()
    other.publish()

    assert published.counts() == other.counts() == published.expected()


def test_what_was_published_in_part_from_other_records_is_given_up_and_told_once(published, proxy):
    published.settings = dataclasses.replace(QUICK, retries=dataclasses.replace(QUICK.retries, tries=1))
    proxy.use(FaultRule(fault=ACCESS_DENIED_FAULT, operation="PutMetricData", skip=1))
    with pytest.raises(PublishError, match="PutMetricData is denied"):
        published.publish()
    proxy.use()
    published.made_of = Made(folder=published.folder, seed=99, first_s=published.made_of.first_s)

    first, second = published.publish(), published.publish()

    assert "round 0 was published in part from other records" in first.lost[0]
    assert (len(first.lost), second.whole) == (1, True)


def test_no_call_is_made_but_those_declared_and_each_of_them_is(published, proxy, tmp_path):
    given, seen = services(proxy.url, published.endpoint.region, "111122223333"), set()
    for name in ("cloudwatch", "s3", "sts"):
        client = getattr(given, name)
        client.meta.events.register("before-call", lambda model, name=name, **_: seen.add((name, model.name)))
    path = published.folder / "large.jsonl"
    path.write_bytes(bytes(20 << 20))
    one = next(published.made_of.rounds())
    large = dataclasses.replace(one, records=(dataclasses.replace(one.records[0], path=path, first=0, end=20 << 20),))
    copy: Published = copied(published, tmp_path)
    proxy.use(FaultRule(fault=AnswerLossFault(), operation="PutMetricData", times=1),
              FaultRule(fault=ACCESS_DENIED_FAULT, operation="UploadPart", times=1))  # fmt: skip
    with pytest.raises(PublishError, match="UploadPart is denied"):
        published.publish(lambda _: [large], services=given)

    published.publish(lambda _: [large], services=given)
    copy.publish(lambda _: [large], services=given)

    assert seen == set(CALLS)
