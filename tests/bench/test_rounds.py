"""The load of the measuring machine is kept round by round."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from tandem.bench import client_load
from tandem.bench.client_load import FILE, ClientLoadWriter
from tandem.bench.fault import ExternalBenchError
from tandem.bench.host import HostWatch


@dataclass
class Turn:
    round: int


def kept(folder, *asked: tuple[int, bool]) -> list[int]:
    async def main():
        writer = ClientLoadWriter(folder=folder, watch=HostWatch())
        for number, has_requests in asked:
            writer.begin_turn(Turn(number))
            writer.has_requests |= has_requests
        writer.end()

    asyncio.run(main())
    return [load.round for load in client_load.read_round_loads(folder)]


def test_every_round_that_asked_something_has_a_line(tmp_path):
    assert list(client_load.read_round_loads(tmp_path)) == []
    assert kept(tmp_path, (0, True), (0, False), (1, False), (2, True)) == [0, 2]

    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"round":1,"wal')  # a torn line is passed over
    assert [load.round for load in client_load.read_round_loads(tmp_path)] == [0, 2]


def test_a_sample_has_what_was_taken_since_the_one_before_and_nothing_left_out():
    async def main():
        watch = HostWatch()
        with watch.exclude():
            time.sleep(0.3)  # noqa: ASYNC251 - publishing
        first, ends = watch.sample(), time.process_time() + 0.1
        while time.process_time() < ends:
            pass
        return first, watch.sample()

    first, second = asyncio.run(main())

    assert first.wall_s < 0.3
    assert (second.client_cpu > 0, second.wall_s >= 0.1) == (True, True)


def test_a_place_that_takes_no_line_is_named(tmp_path):
    with pytest.raises(ExternalBenchError, match=r"gone/rounds\.jsonl: the load of a round cannot be written"):
        kept(tmp_path / "gone", (0, True))
