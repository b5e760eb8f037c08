import json

import measured
import pytest

from tandem.bench import manifest
from tandem.bench.ground_truth import compare_ground_truth, format_lines
from tandem.bench.record import Chunk, RecordWriter, RequestRecord


@pytest.fixture
def run(tmp_path):
    """Two arms, two classes; the variant commits four tokens a step and takes twice as long for it."""
    log = []
    with RecordWriter(tmp_path / "records.jsonl") as writer:
        for arm, tokens, step_s in (("plain", 1, 0.04), ("drafted", 4, 0.08)):
            for class_ in ("chat", "json"):
                request_id = f"{arm}.{class_}"
                bursts = [[100.2, 1]] + [[100.2 + step_s * number, tokens] for number in range(1, 9)]
                log.append({"request_id": request_id, "accepted_s": 100.0, "bursts": bursts})
                writer.write(record(arm, class_, bursts))
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    used = manifest.SuiteEntry(name="s", sha256="0" * 64, prompts=2, classes=("json", "chat"))
    arms = (measured.arm("plain", role="baseline"), measured.arm("drafted"))
    manifest.write_manifest(tmp_path, measured.run_manifest(suites=(used,), arms=arms))
    return tmp_path


def record(arm, class_, bursts, **changes) -> RequestRecord:
    start_s = 99.999  # a millisecond on the way
    last_s = bursts[-1][0] - start_s
    fields = {
        "request_id": f"{arm}.{class_}", "arm": arm, "class_": class_, "suite": "s", "prompt_id": class_,
        "start_s": start_s, "end_s": last_s,
        "chunks": (
            Chunk(bursts[0][0] - start_s, "role", 0), *(Chunk(at - start_s, "text", size) for at, size in bursts),
            Chunk(last_s, "end", 0),
        ),
        "completion_tokens": sum(size for _, size in bursts), "counted_by": "usage",
    }  # fmt: skip
    return measured.record(**fields | changes)


def rows(run):
    return {(row.class_, row.arm): row for row in compare_ground_truth(run, [run / "log.jsonl"]).rows}


def test_truth_and_measurement_stand_beside_each_other_in_the_order_of_suite_and_command_line(run) -> None:
    found = rows(run)

    assert found["chat", "plain"].figures["ttft_ms"] == pytest.approx((200, 201))
    assert found["json", "drafted"].figures["tpot_ms"] == pytest.approx((8 * 80 / 32, 8 * 80 / 32))
    assert found["all", "drafted"].llmperf_ms == pytest.approx((201 + 8 * 80) / 11)
    assert list(found) == [(class_, arm) for class_ in ("json", "chat", "all") for arm in ("plain", "drafted")]


@pytest.mark.parametrize("changes", [{"request_id": "stray"}, {"error": "closed"}], ids=["in no log", "failed"])
def test_a_request_without_truth_is_left_out_of_both_sides_and_counted(run, changes) -> None:
    with RecordWriter(run / "records.jsonl") as writer:
        writer.write(record("plain", "chat", [[100.5, 1], [101.5, 1]], **changes))

    assert (compare_ground_truth(run, [run / "log.jsonl"]).left_out, rows(run)["chat", "plain"].n) == (1, 1)


def test_the_last_line_says_what_each_way_of_counting_makes_of_the_speedup(run) -> None:
    lines = list(format_lines(compare_ground_truth(run, [run / "log.jsonl"])))

    assert lines[-1] == "time per token, plain / drafted: truth 2.00, Tandem 2.00, by llmperf's count of chunks 0.62"
    assert max(map(len, lines)) <= 100


def test_what_a_server_spoiled_is_left_out_and_one_class_has_no_row_for_all(run) -> None:
    spoiled = (run / "log.jsonl").read_text().replace('"plain.chat",', '"plain.chat", "fault": "stall",')
    (run / "log.jsonl").write_text(spoiled)
    assert ("chat", "plain") not in rows(run)

    (run / "log.jsonl").write_text("".join(line for line in spoiled.splitlines(keepends=True) if "json" in line))
    assert set(rows(run)) == {("json", "plain"), ("json", "drafted")}
