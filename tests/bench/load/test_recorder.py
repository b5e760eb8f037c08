"""The recorder: records reach the disk before their workers go on."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from measured import record

from tandem.bench.load.recorder import open_recorder
from tandem.bench.records.record import read_records


def test_a_record_is_on_disk_when_its_worker_goes_on(tmp_path):
    async def write():
        with open_recorder(tmp_path / "records.jsonl") as write_record:
            await write_record(record)
            return list(read_records(tmp_path / "records.jsonl"))

    assert asyncio.run(write()) == [record()]


def test_one_thread_writes_all_records(tmp_path):
    thread_ids = []

    def complete():
        thread_ids.append(threading.get_ident())
        time.sleep(0.02)
        return record()

    async def write():
        with open_recorder(tmp_path / "records.jsonl") as write_record:
            await asyncio.gather(write_record(complete), write_record(complete))

    asyncio.run(write())
    assert len(thread_ids) == 2
    assert len(set(thread_ids)) == 1


def test_threads_switch_faster_only_while_it_is_open(tmp_path):
    before_s = sys.getswitchinterval()
    with open_recorder(tmp_path / "records.jsonl"):
        assert sys.getswitchinterval() < before_s
    assert sys.getswitchinterval() == before_s
