"""Publishing that is killed, throttled and left without answers: nothing is lost, and one batch a
kill counts twice."""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections import Counter

import pytest
from doubles.fault_proxy.rules import (
    INTERNAL_ERROR_FAULT,
    THROTTLING_FAULT,
    AnswerCutFault,
    AnswerLossFault,
    DropFault,
    FaultRule,
)
from published_run import PublishedRun

from tandem.errors import TandemError

pytestmark = pytest.mark.proof

WEATHERS = 25


@pytest.fixture
def publication(endpoint, proxy, bucket, tmp_path):
    return PublishedRun(
        endpoint=endpoint, url=proxy.url, bucket=bucket, folder=tmp_path / "out"
    ).made()


def draw_run(publication: PublishedRun, chance: random.Random) -> PublishedRun:
    """A run of its own: of random values, in rounds that share their minutes or do not."""
    name = uuid.uuid4().hex[:8]
    run = dataclasses.replace(
        publication, folder=publication.folder.with_name(name), environment=f"e{name}"
    )
    return run.made(
        seed=chance.randrange(10**6),
        count=chance.randint(1, 3),
        step_s=chance.choice([0, 20, 60]),
        gaps=chance.choice([5, 40, 200]),
    )


def publish_to_end(run: PublishedRun, tries: int) -> int:
    """Publish until nothing is left; how often it gave up before."""
    for attempt in range(tries):
        try:
            if run.publish().is_whole:
                return attempt
        except TandemError:
            continue
    raise AssertionError(f"not whole after {tries} tries")


def test_publishing_killed_at_each_request(publication, proxy, chance, report):
    proxy.forget()
    publication.publish()
    moments = [
        (when, number) for when in ("asked", "done") for number in range(1, len(proxy.log) + 1)
    ]
    kills: Counter[str] = Counter()
    losses = duplicates = 0
    for moment in moments:
        run = draw_run(publication, chance).made(count=2)
        run_kills = 0
        for when, number in [moment, *chance.choices(moments, k=chance.choice([0, 0, 1, 2]))]:
            proxy.forget()
            if run.kill(proxy, when, number):
                kills[f"{proxy.log[number - 1].operation} {when}"] += 1
                run_kills += 1
        publish_to_end(run, 1)
        losses += run.lost()
        assert run.duplicates() <= run_kills
        duplicates += run.duplicates()

    report(
        kills=dict(sorted(kills.items())),
        minutes_of_series_lost=losses,
        batches_counted_twice=duplicates,
    )
    assert losses == 0


def draw_weather(chance: random.Random) -> list[FaultRule]:
    """Faults of which the first two lose an answer."""
    put = {"operation": "PutMetricData", "times": 8}
    faults = [
        (AnswerLossFault(), put),
        (AnswerCutFault(), put),
        (THROTTLING_FAULT, {"operation": "PutMetricData"}),
        (INTERNAL_ERROR_FAULT, put),
        (DropFault(), put),
        (AnswerLossFault(), {"operation": "PutObject", "times": 8}),
        (INTERNAL_ERROR_FAULT, {"service": "s3", "times": 8}),
    ]
    return [
        FaultRule(
            fault=fault,
            probability=chance.choice([0.05, 0.15, 0.3]),
            seed=chance.randrange(10**6),
            **which,
        )
        for fault, which in faults
    ]


def test_publishing_in_bad_weather(publication, proxy, chance, report):
    faults = gave_up = losses = duplicates = 0
    for _ in range(WEATHERS):
        run = draw_run(publication, chance)
        proxy.use(*draw_weather(chance))
        gave_up += publish_to_end(run, 40)
        silent_puts = sum(proxy.fault_counts[:2])
        faults += sum(proxy.fault_counts)
        proxy.use()
        losses += run.lost()
        assert run.duplicates() <= silent_puts
        duplicates += run.duplicates()

    report(
        runs=WEATHERS,
        faults=faults,
        gave_up_and_begun_again=gave_up,
        minutes_of_series_lost=losses,
        batches_counted_twice=duplicates,
    )
    assert losses == 0
