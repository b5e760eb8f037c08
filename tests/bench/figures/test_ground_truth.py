"""Each figure beside what the server itself logged."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import measured
import msgspec
import numpy as np
import pytest

from tandem.bench.figures.ground_truth import (
    ServerLogEntry,
    compare_ground_truth,
    format_lines,
    read_log,
)
from tandem.bench.records import manifest
from tandem.bench.records.record import Chunk, RecordWriter, RequestRecord
from tandem.cli.program import main
from tandem.errors import InputError

LINE = (
    '{"request_id": "a", "accepted_s": 10.0, "bursts": [[10.2, 1], [10.25, 4], [10.3, 3]],'
    ' "status": 200}\n'
)


def test_the_figures_of_a_log_are_counted_by_hand():
    entry = msgspec.json.decode(LINE, type=ServerLogEntry)
    figures = {"tokens": 8, "ttft_ms": 200, "e2e_ms": 300, "tpot_ms": 100 / 7, "chunk_gap_ms": 50}
    figures |= {"tokens_per_chunk": 8 / 3, "output_tokens_per_s": 8 / 0.3}

    assert entry.figures() == pytest.approx(figures)
    single = msgspec.structs.replace(entry, bursts=((10.2, 1),))
    assert np.isnan([single.figures()[name] for name in ("tpot_ms", "chunk_gap_ms")]).all()


def test_incomplete_lines_of_a_log_are_skipped(tmp_path):
    failed = '{"request_id": "b", "accepted_s": 1.0, "bursts": [], "fault": "status_500"}\n'
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"knobs": {}}\n' + LINE + '{"event": "restart", "at_s": 3}\n' + failed + LINE[:40]
    )

    assert list(read_log(path)) == ["a"]
    path.write_text(LINE + "not json\n")
    with pytest.raises(InputError, match=r"log.jsonl:2: not a line of the server's log"):
        read_log(path)
    with pytest.raises(InputError, match="the server's log cannot be read"):
        read_log(tmp_path / "none")


def record(arm: str, class_: str, bursts: list[list[float]], **changes: object) -> RequestRecord:
    start_s = 99.999  # a millisecond on the way
    last_s = bursts[-1][0] - start_s
    texts = [Chunk(at_s - start_s, "text", int(size)) for at_s, size in bursts]
    fields = {
        "request_id": f"{arm}.{class_}",
        "arm": arm,
        "class_": class_,
        "suite": "s",
        "prompt_id": class_,
    }
    fields |= {"start_s": start_s, "end_s": last_s, "counted_by": "usage"}
    fields["chunks"] = (Chunk(bursts[0][0] - start_s, "role", 0), *texts, Chunk(last_s, "end", 0))
    fields["completion_tokens"] = sum(int(size) for _, size in bursts)
    return measured.record(**fields | changes)


@pytest.fixture
def run(tmp_path):
    """Two arms, two classes; the variant commits four tokens a step and takes twice as long for
    it."""
    log = []
    with RecordWriter(tmp_path / "records.jsonl") as writer:
        for arm, tokens, step_s in (("plain", 1, 0.04), ("drafted", 4, 0.08)):
            for class_ in ("chat", "json"):
                bursts = [
                    [100.2, 1],
                    *([100.2 + step_s * number, tokens] for number in range(1, 9)),
                ]
                log.append({"request_id": f"{arm}.{class_}", "accepted_s": 100.0, "bursts": bursts})
                writer.write(record(arm, class_, bursts))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    used = manifest.SuiteEntry(name="s", sha256="0" * 64, prompts=2, classes=("json", "chat"))
    arms = (measured.arm("plain", role="baseline"), measured.arm("drafted"))
    manifest.write_manifest(tmp_path, measured.run_manifest(suites=(used,), arms=arms))
    return tmp_path


def rows(run: Path):
    return {
        (row.class_, row.arm): row for row in compare_ground_truth(run, [run / "log.jsonl"]).rows
    }


def test_truth_stands_beside_measurement_in_the_order_of_suites(run):
    by_place = rows(run)

    assert by_place["chat", "plain"].figures["ttft_ms"] == pytest.approx((200, 201))
    assert by_place["json", "drafted"].figures["tpot_ms"] == pytest.approx(
        (8 * 80 / 32, 8 * 80 / 32)
    )
    assert by_place["all", "drafted"].llmperf_ms == pytest.approx((201 + 8 * 80) / 11)
    assert list(by_place) == [
        (class_, arm)
        for class_, arm in itertools.product(("json", "chat", "all"), ("plain", "drafted"))
    ]


@pytest.mark.parametrize(
    "changes", [{"request_id": "stray"}, {"error": "closed"}], ids=["in no log", "failed"]
)
def test_a_request_without_truth_is_on_neither_side(run, changes):
    with RecordWriter(run / "records.jsonl") as writer:
        writer.write(record("plain", "chat", [[100.5, 1], [101.5, 1]], **changes))
    assert (
        compare_ground_truth(run, [run / "log.jsonl"]).left_out,
        rows(run)["chat", "plain"].n,
    ) == (1, 1)


def test_the_last_line_has_each_way_of_counting(run):
    lines = list(format_lines(compare_ground_truth(run, [run / "log.jsonl"])))
    assert (
        lines[-1]
        == "time per token, plain / drafted: truth 2.00, Tandem 2.00, by llmperf's count of chunks"
        " 0.62"
    )
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("bursts", "tpot_ms"),
    [([[100.0, 3]], 0.0), ([[100.0, 0], [100.0, 0]], None)],
)
def test_a_log_without_a_duration_gives_no_ratio_and_null(run, capsys, bursts, tpot_ms):
    lines = [
        json.loads(line) | {"bursts": bursts}
        for line in (run / "log.jsonl").read_text().splitlines()
    ]
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert (
        "truth -, Tandem 2.00, by"
        in list(format_lines(compare_ground_truth(run, [run / "log.jsonl"])))[-1]
    )
    assert main(["bench", "verify", str(run), "--log", str(run / "log.jsonl"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["rows"][0]["figures"]["tpot_ms"][0] == tpot_ms
