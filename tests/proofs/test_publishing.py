"""Publishing that is killed, throttled and left without answers at random, until it is done: exact counts."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from pathlib import Path

import pytest
from doubles.fault_proxy.rules import (
    INTERNAL_ERROR_FAULT,
    THROTTLING_FAULT,
    AnswerCutFault,
    AnswerLossFault,
    DropFault,
    FaultRule,
)
from killed import Moment, killed, start, until_done
from publishing import Published

from tandem.publish import PublishError

pytestmark = pytest.mark.proof

KILLS = 40
WEATHERS = 25
PAIRS = 12


@pytest.fixture
def published(endpoint, proxy, bucket, tmp_path) -> Published:
    return Published(endpoint=endpoint, url=proxy.url, bucket=bucket, folder=tmp_path / "out").made()


def another(published: Published, folder: Path, chance: random.Random, number: int) -> Published:
    """A run of its own: of random values, in rounds that share their minutes or do not."""
    run = dataclasses.replace(published, folder=folder, environment=f"{published.environment}n{number}")
    return run.made(
        seed=chance.randrange(10**6), number=chance.randint(1, 3), step_s=chance.choice([0, 20, 60]),
        gaps=chance.choice([5, 40, 200]),
    )  # fmt: skip


def wrong(published: Published) -> int:
    """How many minutes of series hold another number of values than they must."""
    counts = published.counts()
    return sum(counts[key] != must for key, must in published.expected().items())


def test_publishing_killed_at_random_requests(published, proxy, chance, report, tmp_path):
    kills: Counter[str] = Counter()
    trials = runs = minutes = faults = 0
    while kills.total() < KILLS:
        run = another(published, tmp_path / f"k{trials}", chance, trials)
        for _ in range(chance.choice([1, 1, 2, 3])):
            moment = Moment.drawn(chance, most=6)
            if killed(run, proxy, moment):
                kills[f"{moment.operation} {moment.when}"] += 1
        runs += until_done(run)
        faults += wrong(run)
        minutes += len(run.expected())
        trials += 1

    report(
        trials=trials, kills=dict(sorted(kills.items())), runs_to_an_end=runs, minutes_of_series=minutes, wrong=faults
    )
    assert faults == 0


def weather(chance: random.Random) -> list[FaultRule]:
    def rule(fault, **which) -> FaultRule:
        return FaultRule(
            fault=fault, probability=chance.choice([0.05, 0.15, 0.3]), seed=chance.randrange(10**6), **which
        )

    put = {"operation": "PutMetricData", "times": 8}
    return [
        rule(THROTTLING_FAULT, operation="PutMetricData"),
        rule(INTERNAL_ERROR_FAULT, **put),
        rule(AnswerLossFault(), **put),
        rule(DropFault(), **put),
        rule(AnswerCutFault(), **put),
        rule(THROTTLING_FAULT, operation="GetMetricData"),
        rule(AnswerLossFault(), operation="PutObject", times=8),
        rule(INTERNAL_ERROR_FAULT, service="s3", times=8),
    ]


def test_publishing_in_bad_weather(published, proxy, chance, report, tmp_path):
    fired = gave_up = minutes = faults = 0
    for number in range(WEATHERS):
        run = another(published, tmp_path / f"w{number}", chance, number)
        proxy.use(*weather(chance))
        for _ in range(40):
            try:
                if run.publish().whole:
                    break
            except PublishError:
                gave_up += 1
        fired += sum(proxy.fault_counts)
        proxy.use()
        until_done(run)
        faults += wrong(run)
        minutes += len(run.expected())

    report(runs=WEATHERS, faults=fired, gave_up_and_begun_again=gave_up, minutes_of_series=minutes, wrong=faults)
    assert faults == 0


def test_two_publish_at_once_one_folder_or_its_copy(published, chance, report, tmp_path):
    codes: Counter[int] = Counter()
    minutes = faults = 0
    for number in range(PAIRS):
        run = another(published, tmp_path / f"p{number}", chance, number)
        other = run if chance.random() < 0.5 else run.elsewhere(tmp_path / f"p{number}-copy")
        other.made_of.records(0)
        both = [start(run), start(other)]
        if chance.random() < 0.3:  # now and then one dies
            chance.choice(both).kill()
        codes.update(process.wait(120) for process in both)
        until_done(run)
        until_done(other)
        faults += wrong(run)
        minutes += len(run.expected())

    report(pairs=PAIRS, codes=dict(sorted(codes.items())), minutes_of_series=minutes, wrong=faults)
    assert faults == 0
