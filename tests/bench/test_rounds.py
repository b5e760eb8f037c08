"""The load of the measuring machine is kept round by round."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from tandem.bench import client_load
from tandem.bench.client_load import FILE, ClientLoadWriter, RoundLoad
from tandem.bench.fault import ExternalBenchError
from tandem.bench.host import HostWatch


@dataclass
class Turn:
    round: int


def kept(folder, *asked: tuple[int, bool]) -> list[RoundLoad]:
    async def main():
        laps = ClientLoadWriter(folder=folder, watch=HostWatch())
        for number, any_ in asked:
            laps.begin_turn(Turn(number))
            laps.has_requests |= any_
        laps.end()

    asyncio.run(main())
    return list(client_load.read_round_loads(folder))


def test_every_round_that_asked_something_has_a_line(tmp_path):
    assert [one.round for one in kept(tmp_path, (0, True), (0, False), (1, False), (2, True))] == [0, 2]


def test_a_lap_has_what_was_taken_since_the_lap_before():
    async def main():
        watch = HostWatch()
        time.sleep(0.05)  # noqa: ASYNC251 - the round before
        watch.sample()
        ends = time.process_time() + 0.1
        while time.process_time() < ends:
            pass
        return watch.sample()

    lap = asyncio.run(main())

    assert lap.client_cpu > 0
    assert lap.wall_s >= 0.1


def test_what_is_left_out_of_the_run_is_left_out_of_its_lap():
    async def main():
        watch = HostWatch()
        with watch.exclude():
            time.sleep(0.2)  # noqa: ASYNC251 - publishing
        return watch.sample()

    assert asyncio.run(main()).wall_s < 0.2


def test_a_torn_line_is_passed_over(tmp_path):
    kept(tmp_path, (0, True))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"round":1,"wal')

    assert [one.round for one in client_load.read_round_loads(tmp_path)] == [0]


def test_a_run_without_the_file_has_no_load(tmp_path):
    assert list(client_load.read_round_loads(tmp_path)) == []


def test_a_place_that_takes_no_line_is_named(tmp_path):
    with pytest.raises(ExternalBenchError, match=r"gone/rounds\.jsonl: the load of a round cannot be written"):
        kept(tmp_path / "gone", (0, True))
