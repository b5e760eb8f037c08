"""Waiting within a run: as long as asked, or until the run is asked to end."""

from __future__ import annotations

import time

import uvloop

from tandem.bench.load.interrupt import StopSignal

ODD_S = 0.0013  # uvloop's timers are of whole milliseconds


def test_nothing_wakes_before_its_moment():
    async def early() -> list[float]:
        stop = StopSignal()
        began = time.monotonic()
        moments = [began + ODD_S * number for number in range(1, 40)]
        left = []
        for moment in moments:
            await stop.sleep(moment - time.monotonic())
            left.append(moment - time.monotonic())
        return left

    assert max(uvloop.run(early())) <= 0
