"""`tandem dashboard`: the page of a measured run, its numbers against summary.json, and every refusal."""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tandem.bench import manifest, summary
from tandem.bench.simulation import SIMULATED_BAND
from tandem.cli.program import _build_parser, main

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "tests" / "monitoring" / "measured" / "run"
FOLDERS = ("--environments", str(ROOT / "environments"), "--experiments", str(ROOT / "experiments"))
ROUNDED = 0.0056  # half a step of three digits, and the page's four


def command(folder: Path, out: Path, *more: str) -> list[str]:
    return ["dashboard", str(folder), "--env", "post-us-east-2", "--html", str(out), *FOLDERS, *more]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The page, and what was printed when it was written."""
    out, said = tmp_path_factory.mktemp("page") / "dashboard.html", io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(command(RUN, out)) == 0
    return out, said.getvalue()


@pytest.fixture(scope="module")
def page(written: tuple[Path, str]) -> Path:
    return written[0]


@pytest.fixture(scope="module")
def data(page: Path) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str, str, str], summary.SummaryCell]:
    found = summary.summarize_run(RUN).cells
    return {(cell.class_, str(cell.concurrency), cell.metric, cell.arm): cell for cell in found}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RUN, tmp_path / "run"))


def graphs(data: dict, title: str) -> list[dict]:
    every = [widget for dashboard in data["dashboards"] for widget in dashboard["widgets"]]
    return [widget for widget in every if widget.get("title", "").startswith(title)]


def test_the_path_is_printed(written: tuple[Path, str]) -> None:
    assert written[1] == f"{written[0]}\n"


def test_a_dashboard_of_simulated_servers_says_so(copied: Path, tmp_path: Path, page: Path) -> None:
    kept = manifest.read_manifest(copied)
    manifest.write_manifest(copied, msgspec.structs.replace(kept, simulated=True))

    assert main(command(copied, tmp_path / "page.html")) == 0
    text = (tmp_path / "page.html").read_text()
    assert f'<p class="band" role="note">{SIMULATED_BAND}</p>' in text
    assert "<title>Simulated: post" in text
    assert SIMULATED_BAND not in page.read_text()


def test_all_three_dashboards_are_in_the_page(data: dict) -> None:
    assert [each["name"] for each in data["dashboards"]] == [
        "tandem-post-us-east-2-post", "tandem-post-us-east-2-machine", "tandem-post-us-east-2-money",
    ]  # fmt: skip


@pytest.mark.parametrize("quantile", ["p50", "p90"])
@pytest.mark.parametrize(
    ("title", "metric"),
    [("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E latency", "e2e_ms"), ("Chunk gap", "chunk_gap_ms")],
)
def test_quantiles_of_the_whole_run_are_those_of_the_summary(
    data: dict, cells: dict, title: str, metric: str, quantile: str
) -> None:
    (graph,) = graphs(data, f"{title}, {quantile}")
    drawn = {
        (*choice.split("\n"), metric, line["label"]): line["whole"]
        for choice, lines in graph["lines"].items()
        for line in lines
        if line["whole"] is not None
    }

    wanted = {
        key: pytest.approx(getattr(cell, quantile), rel=ROUNDED) for key, cell in cells.items() if key[2] == metric
    }
    assert len(wanted) == 2 * 2 * 7  # arms, loads, classes and their pool
    assert drawn == wanted


def test_the_speed_up_is_that_of_the_summary_s_medians(data: dict, cells: dict) -> None:
    (graph,) = graphs(data, "TPOT, speed-up")
    drawn = {tuple(choice.split("\n")): lines[0]["whole"] for choice, lines in graph["lines"].items()}

    wanted = {
        (class_, load): pytest.approx(cell.p50 / cells[class_, load, metric, "qwen-sd-vllm"].p50, rel=2 * ROUNDED)
        for (class_, load, metric, arm), cell in cells.items()
        if (metric, arm) == ("tpot_ms", "qwen-vllm")
    }
    assert len(wanted) == 14
    assert drawn == wanted


def test_the_post_s_figures_have_both_prompts_of_both_arms_at_each_load(data: dict) -> None:
    figures = graphs(data, "Figure ")

    assert len(figures) == 4
    for figure in figures:
        labels = [line["label"] for line in figure["lines"][""]]
        assert len(labels) == len(set(labels)) == 2 * 2 * 2
        assert {label.split(",")[0] for label in labels} == {"repeat", "open"}


def test_every_request_is_counted_once(data: dict) -> None:
    records = RUN.joinpath("records.jsonl").read_text().splitlines()
    (graph,) = graphs(data, "Last runs")

    assert graph["lines"][""][0]["whole"] == len(records)


def test_what_the_machine_and_the_log_send_is_absent_and_named(data: dict) -> None:
    absent = [
        widget for dashboard in data["dashboards"][1:] for widget in dashboard["widgets"] if widget["kind"] == "absent"
    ]

    assert {publisher for widget in absent for publisher in widget["publishers"]} == {
        "container-insights", "vllm-scrape", "log-filter", "guard",
    }  # fmt: skip


def test_the_same_records_give_the_same_bytes_wherever_they_lie_and_with_a_torn_last_line(
    page: Path, copied: Path, tmp_path: Path
) -> None:
    with (copied / "records.jsonl").open("a") as file:
        file.write('{"schema":1,"request_id":"x"')

    assert main(command(copied, tmp_path / "page.html")) == 0

    assert (tmp_path / "page.html").read_bytes() == page.read_bytes()


def test_a_page_is_below_two_megabytes(page: Path) -> None:
    assert page.stat().st_size < 2_000_000


def refusal(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    assert main(list(words)) == code
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_rejects_a_folder_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, *command(tmp_path / "nowhere", tmp_path / "page.html"))

    assert said.startswith(
        f"error: {tmp_path / 'nowhere' / 'manifest.json'}: the manifest cannot be read: No such file"
    )
    assert not (tmp_path / "page.html").exists()


def test_rejects_a_folder_without_records(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copied / "records.jsonl").unlink()

    assert "the records cannot be read" in refusal(capsys, *command(copied, tmp_path / "page.html"))


def test_rejects_a_run_without_a_request(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copied / "records.jsonl").write_text("")
    (copied / "counters.jsonl").write_text("")

    assert "there is no request in these records" in refusal(capsys, *command(copied, tmp_path / "page.html"))


def test_rejects_an_unknown_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dashboard", str(RUN), "--env", "post-us-east-1", "--html", str(tmp_path / "page.html"), *FOLDERS]

    assert "post-us-east-1" in refusal(capsys, *words)


def test_rejects_an_experiment_that_the_environment_does_not_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, *command(RUN, tmp_path / "page.html", "--experiment", "pots"))

    assert said == "error: --experiment: post-us-east-2 hosts no experiment pots; did you mean post?\n"


def test_names_the_arms_that_are_no_variants_of_the_experiment(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed(copied, "qwen-sd-vllm", "draft")

    said = refusal(capsys, *command(copied, tmp_path / "page.html", "--experiment", "post"))

    assert "post has no variant draft; its variants are qwen-vllm, qwen-sd-vllm" in said


def test_names_what_is_hosted_where_no_experiment_has_the_arms(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    renamed(copied, "qwen-sd-vllm", "draft")

    said = refusal(capsys, *command(copied, tmp_path / "page.html"))

    assert "no experiment of post-us-east-2 has the arms qwen-vllm, draft (post: qwen-vllm, qwen-sd-vllm; " in said


def test_rejects_a_run_of_another_environment(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied / "manifest.json"
    path.write_text(path.read_text().replace('"environment": null', '"environment": "elsewhere"'))

    said = refusal(capsys, *command(copied, tmp_path / "page.html"))

    assert said == (
        "error: --env: the servers of elsewhere were measured, not those of post-us-east-2; say --env elsewhere\n"
    )


@pytest.mark.parametrize(
    ("out", "says"),
    [("", "this is a folder"), ("no/page.html", "there is no folder"), ("file/page.html", "there is no folder")],
    ids=["a folder", "below no folder", "below a file"],
)
def test_rejects_a_place_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, says: str
) -> None:
    (tmp_path / "file").write_text("")

    assert says in refusal(capsys, *command(RUN, tmp_path / out))


@contextlib.contextmanager
def room(for_bytes: int) -> Iterator[None]:
    """Let a file of this process have so many bytes, which feels as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (for_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_and_leaves_the_page_of_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    out.write_text("before")

    with room(100_000):
        said = refusal(capsys, *command(RUN, out), code=3)

    assert f"error: {out}: the page cannot be written: File too large; make room, or name another" in said
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert out.read_text() == "before"


def test_a_refusal_is_one_json_document_where_asked(tmp_path: Path) -> None:
    words = command(tmp_path / "nowhere", tmp_path / "page.html", "--json")

    done = subprocess.run([sys.executable, "-m", "tandem", *words], cwd=ROOT, capture_output=True, check=False)

    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert b"Traceback" not in done.stderr


def test_what_was_written_is_one_json_document_where_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(command(RUN, out, "--json")) == 0

    assert json.loads(capsys.readouterr().out) == {"html": str(out), "bytes": out.stat().st_size}


def renamed(folder: Path, arm: str, name: str) -> None:
    for file in ("manifest.json", "records.jsonl", "counters.jsonl"):
        text = (folder / file).read_text()
        (folder / file).write_text(re.sub(rf'("(?:name|arm)":\s*)"{arm}"', rf'\1"{name}"', text))


@pytest.mark.parametrize(
    "line", re.findall(r"^tandem dashboard .*$", (ROOT / "docs/watch.md").read_text(), re.MULTILINE)
)
def test_every_command_of_the_page_on_watching_parses(line: str) -> None:
    assert _build_parser().parse_args(line.split()[1:]).command == "dashboard"


def test_the_demo_asks_the_two_prompts_of_figures_3_to_5() -> None:
    demo = " ".join((ROOT / "Makefile").read_text().replace("\\\n", " ").split())
    asked = re.search(r"--suite post real --classes (\S+)", demo)

    assert asked
    assert {"repeat", "open"} <= set(asked[1].split(","))
