"""The figures that a sweep's search gets of a pair: what its verdict has, by cell."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tandem.judge.schema import Verdict
from tandem.run.judge_job import extract_evidence

FROZEN = Path(__file__).parents[1] / "frozen" / "verdicts"


def read_verdict(name):
    content = (FROZEN / name / "verdict.json").read_bytes()
    return msgspec.json.decode(content, type=Verdict)


def test_evidence_has_the_acceptance_of_each_position():
    verdict = read_verdict("restarts")
    by_class = {row.class_: row.per_position for row in verdict.acceptance if row.arm == "drafted"}
    evidence = extract_evidence(verdict)
    assert evidence is not None
    assert evidence.position_rates == {
        "json, concurrency 2": by_class["json"],
        "chat, concurrency 2": by_class["chat"],
    }


def test_evidence_of_a_server_that_counts_no_positions_has_none():
    evidence = extract_evidence(read_verdict("measured"))
    assert evidence is not None
    assert (evidence.position_rates, len(evidence.tokens)) == ({}, 12)


def test_goodput_is_that_of_all_loads_together():
    evidence = extract_evidence(read_verdict("faults"))
    assert evidence is not None
    assert evidence.goodput_per_usd == pytest.approx((58_400, 103_335), rel=1e-5)
