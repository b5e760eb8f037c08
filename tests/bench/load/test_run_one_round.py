"""One process a round: what each asks, how the folder ends, and that all of them together are one
run."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import pytest
from measured import record, write_run
from running import Ran, measure

from tandem.bench.figures.request_table import read_request_table
from tandem.bench.records import manifest
from tandem.cli.bench_report import report_run
from tandem.errors import ExitCode, InputError

pytestmark = pytest.mark.xdist_group("bench-run")
PROMPTS = {"code": ["a", "b", "c", "d"], "chat": ["e", "f"]}
ROUNDS = {"rounds": 2, "control_rounds": 1, "seed": 5}
TOTAL = 3


def asked(ran: Ran) -> list[tuple[str, dict[str, Any]]]:
    """What the servers were sent, each in the order in which it came: id and body."""
    bodies = [
        (truth["request_id"], truth["body"]) for server in ran.servers for truth in server.posted
    ]
    return [(identity, body) for identity, body in bodies if not identity.startswith("probe-")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("whole"), PROMPTS, concurrency=(1,), **ROUNDS)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Three processes' runs in one folder, at the same addresses; the folder is kept after each."""
    folder = tmp_path_factory.mktemp("parts")
    ran = list[Ran]()
    ports = list[int]()
    for number in range(TOTAL):
        changes = {"concurrency": (1,), **ROUNDS}
        ran.append(
            measure(folder, PROMPTS, only_round=number, resume=number > 0, at=ports, **changes)
        )
        ports = [server.port for server in ran[0].servers]
        shutil.copytree(folder / "out", folder / f"after-{number}")
    return ran


def test_each_part_asks_its_round_alone(parts):
    rounds = [{identity.split(".")[1] for identity, _ in asked(ran)} for ran in parts]
    assert rounds == [{"r0"}, {"r1"}, {"r2"}]


def test_all_parts_ask_what_one_run_asks(whole, parts):
    """The same ids, each with the same prompt and the same seed."""
    expected = dict(asked(whole))
    got = [pair for ran in parts for pair in asked(ran)]
    assert len(got) == len(expected)
    assert dict(got) == expected


def test_a_part_is_paused_until_the_last_one_is_done(parts):
    folders = [parts[0].folder.parent / f"after-{number}" for number in range(TOTAL)]
    ends = [manifest.read_manifest(folder).ended for folder in folders]
    assert [end and end.reason for end in ends] == ["paused", "paused", "done"]
    assert [ran.outcome.reason for ran in parts] == ["paused", "paused", "done"]


def test_a_paused_run_is_neither_whole_nor_broken(parts, capsys):
    codes = [report_run(parts[0].folder.parent / f"after-{n}", None, as_json=False) for n in (0, 2)]
    text = capsys.readouterr().out
    assert codes == [ExitCode.STALE, ExitCode.DONE]
    assert "the run ended early: paused" in text
    assert "12 of 36 planned requests are recorded" in text


def test_the_last_round_first_leaves_the_run_paused(tmp_path):
    ran = measure(tmp_path, only_round=1, rounds=2)
    assert (ran.manifest["ended"]["reason"], {entry.round for entry in ran.records}) == (
        "paused",
        {1},
    )


@pytest.mark.parametrize(
    ("number", "changes"),
    [(-1, {"rounds": 2}), (2, {"rounds": 2}), (0, {"rounds": 0, "duration_s": 1.0})],
)
def test_a_round_that_the_plan_lacks_is_refused(tmp_path, number, changes):
    with pytest.raises(
        InputError, match=rf"the plan has no round {number}; name one of its \d rounds, from 0"
    ):
        measure(tmp_path, only_round=number, **changes)


def test_rounds_of_two_machines_stand_on_one_clock(tmp_path):
    """The second machine was started later, so that its clock is far behind; the third round is the
    first one's."""
    clock = manifest.ClockReading(
        source="monotonic", resolution_s=1e-9, monotonic_s=9e5, utc="2026-11-21T00:00:00Z"
    )
    moments = ((5e3, "2026-11-21T00:10:00Z"), (9e5 + 1200, "2026-11-21T00:20:00Z"))
    later = tuple(
        manifest.ClockReading(source="monotonic", resolution_s=1e-9, monotonic_s=at_s, utc=utc)
        for at_s, utc in moments
    )
    starts = (9e5 + 10, 5e3 + 10, 9e5 + 1210)
    records = [
        record(request_id=f"{arm}.r{number}", arm=arm, round=number, start_s=start_s + place)
        for (number, start_s), (place, arm) in itertools.product(
            enumerate(starts), enumerate(("base", "spec"))
        )
    ]
    folder = write_run(tmp_path / "out", records, clock=clock, resumed=later, rounds=3)

    table = read_request_table(folder)
    assert table.start_s.tolist() == pytest.approx(
        [9e5 + s for s in (10, 11, 610, 611, 1210, 1211)]
    )
    assert (table.end_s - table.start_s).tolist() == pytest.approx([0.3] * 6)
