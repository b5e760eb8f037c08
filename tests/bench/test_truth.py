from pathlib import Path

import msgspec
import pytest

from tandem.bench.fault import BenchError
from tandem.bench.ground_truth import ServerLogEntry, read_log

LINE = '{"request_id": "a", "accepted_s": 10.0, "bursts": [[10.2, 1], [10.25, 4], [10.3, 3]], "status": 200}\n'


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log.jsonl"


def served(**changes) -> ServerLogEntry:
    return msgspec.structs.replace(msgspec.json.decode(LINE, type=ServerLogEntry), **changes)


def test_the_figures_of_a_log_are_counted_by_hand() -> None:
    figures = {"tokens": 8, "ttft_ms": 200, "e2e_ms": 300, "tpot_ms": 100 / 7, "chunk_gap_ms": 50}
    figures |= {"tokens_per_chunk": 8 / 3, "output_tokens_per_s": 8 / 0.3}

    assert {name: getattr(served(), name) for name in figures} == pytest.approx(figures)
    single = served(bursts=((10.2, 1),))
    assert (single.tpot_ms, single.chunk_gap_ms) == (None, None)


def test_lines_without_request_tokens_or_end_are_passed_over(log) -> None:
    failed = '{"request_id": "b", "accepted_s": 1.0, "bursts": [], "fault": "status_500"}\n'
    log.write_text('{"knobs": {}}\n' + LINE + '{"event": "restart", "at_s": 3}\n' + failed + LINE[:40])

    assert list(read_log(log)) == ["a"]


def test_a_line_that_is_no_log_is_named(log) -> None:
    log.write_text(LINE + "not json\n")

    with pytest.raises(BenchError, match=r"log.jsonl:2: this is no line of the server's log"):
        read_log(log)


def test_a_log_that_is_not_there_says_what_to_name(log) -> None:
    with pytest.raises(BenchError, match="the server's log cannot be read"):
        read_log(log)
