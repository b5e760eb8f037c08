"""The program of the quality Job: whom it asks, what it leaves, and what it says of a failure.

A script stands in for lm-eval: it writes its words down and leaves the samples of one item. `make
quality` runs the real one.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from doubles.simulator_thread import SimulatorThread
from test_lm_eval_samples import FILE, SAMPLE

from tandem.bench.lm_eval.__main__ import OUTCOME_FILE, SERVERS_VARIABLE, main
from tandem.bench.lm_eval.call import LmEvalCall
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.records.quality_rows import read_quality
from tandem.errors import ExternalError, InputError
from tandem.simulator.settings import PromptClassSettings, SimulatorSettings

STANDIN = f"""#!{sys.executable}
import json, os, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--output_path") + 1])
(out / "words.json").write_text(json.dumps([os.getcwd(), *sys.argv[1:]]))
(out / {FILE!r}).write_text({json.dumps(SAMPLE) + chr(10)!r})
"""


class TokenCounter(BaseHTTPRequestHandler):
    """The page of vLLM that counts the tokens of a prompt."""

    count = 384

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(
            {"count": self.count} if self.path == "/tokenize" and body["messages"] else {}
        ).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def arms():
    """Two arms whose server counts tokens."""
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenCounter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        yield [
            ManifestArm(name=name, role="variant", url=url, model="m") for name in ("plain", "spec")
        ]
        server.shutdown()


@pytest.fixture
def call(tmp_path):
    """A call of the script that stands in for lm-eval."""
    program = tmp_path / "lm-eval"
    folder = tmp_path / "letters"
    folder.mkdir()
    program.write_text(STANDIN)
    program.chmod(0o755)
    return LmEvalCall(
        python=program,
        task="letters",
        folder=folder,
        items=200,
        max_prompt_tokens=384,
        max_tokens=600,
        chance=0.25,
    )


def test_each_server_gives_rows(call, arms, tmp_path):
    rows = call.ask_servers(arms, tmp_path / "out")
    assert [(row.arm, row.right, row.chance) for row in rows] == [
        ("plain", True, 0.25),
        ("spec", True, 0.25),
    ]


def test_lm_eval_gets_the_settings_of_the_experiment(call, arms, tmp_path):
    call.ask_servers(arms, tmp_path / "out")
    folder, *words = json.loads((tmp_path / "out/letters/plain/words.json").read_text())
    options = dict(itertools.pairwise(words))
    settings = json.loads(options["--gen_kwargs"])

    assert folder == options["--include_path"] == str(tmp_path / "letters")
    assert (options["--limit"], settings["max_gen_toks"]) == ("200", 600)
    assert (settings["do_sample"], settings["temperature"]) == (False, 0)
    assert settings["chat_template_kwargs"] == {"enable_thinking": False}


def test_failed_call_says_its_last_words(call, arms, tmp_path):
    call.python.write_text(f"#!{sys.executable}\nraise SystemExit('no such task')\n")
    with pytest.raises(ExternalError, match="lm-eval ended with 1: no such task"):
        call.ask_servers(arms, tmp_path / "out")


def test_failed_call_says_what_the_server_refused(call, arms, tmp_path):
    refusal = "API request failed with error message: too long"
    call.python.write_text(
        f"#!{sys.executable}\nprint({refusal!r})\nraise SystemExit('Session is closed')\n"
    )
    with pytest.raises(ExternalError, match=refusal):
        call.ask_servers(arms, tmp_path / "out")


def test_failed_call_ends_the_other(call, arms, tmp_path):
    waits = (
        "import sys, time\nif 'plain' in sys.argv[-1]: raise SystemExit('gone')\ntime.sleep(5)\n"
    )
    call.python.write_text(f"#!{sys.executable}\n{waits}open({str(tmp_path / 'went-on')!r}, 'w')\n")
    with pytest.raises(ExternalError, match="gone"):
        call.ask_servers(arms, tmp_path / "out")
    assert not (tmp_path / "went-on").exists()


def test_long_prompt_is_refused(call, arms, tmp_path):
    call = dataclasses.replace(call, max_prompt_tokens=383)
    with pytest.raises(
        InputError, match="a prompt of letters has 384 tokens, above max_prompt_tokens, 383"
    ):
        call.ask_servers(arms, tmp_path / "out")


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Ask two simulated servers that add numbers; return the outcome and the rows."""

    def act(task, servers=None):
        classes = {"default": PromptClassSettings(form="sum")}
        with SimulatorThread(
            SimulatorSettings(model="m", step_ms=(1.0,), prefill_base_ms=1, classes=classes)
        ) as server:
            own = f"plain={server.url} spec={server.url}"
            monkeypatch.setenv(SERVERS_VARIABLE, own if servers is None else servers)
            place = ["--sets", str(tmp_path / "sets"), "--out", str(tmp_path / "out")]
            assert (
                main(
                    [
                        *place,
                        "--model",
                        "m",
                        "--max-prompt-tokens",
                        "99",
                        "--max-tokens",
                        "600",
                        "--task",
                        json.dumps(task),
                    ]
                )
                == 0
            )
        return json.loads((tmp_path / "out" / OUTCOME_FILE).read_text()), read_quality(
            tmp_path / "out"
        )

    return act


SUMS = {"name": "sums", "sha256": None, "items": 10, "chance": 0.1}


def test_own_items_need_no_set(ask):
    outcome, rows = ask(SUMS)
    assert (outcome["exit_code"], len(rows)) == (0, 20)
    assert {(row.arm, row.chance) for row in rows} == {("plain", 0.1), ("spec", 0.1)}


def test_group_of_an_item_is_in_its_rows(ask, tmp_path):
    (tmp_path / "sets/letters").mkdir(parents=True)
    item = {"item": "one", "prompt": "What is 1 + 1?", "answer": "2", "group": "small"}
    (tmp_path / "sets/letters/items.jsonl").write_text(json.dumps(item))
    _, rows = ask({**SUMS, "name": "letters", "sha256": "0" * 64})
    assert [row.group for row in rows] == ["small", "small"]


def test_field_of_lm_eval_is_none_of_items_of_ours(ask):
    outcome, rows = ask({**SUMS, "group": "passage"})
    assert (
        outcome["exit_code"],
        "group 'passage' needs documents of lm-eval" in outcome["problem"],
        rows,
    ) == (2, True, ())


def test_prompt_that_is_too_long_is_the_outcome(ask, tmp_path):
    (tmp_path / "sets/letters").mkdir(parents=True)
    item = {"item": "one", "prompt": "word " * 2000, "answer": "2"}
    (tmp_path / "sets/letters/items.jsonl").write_text(json.dumps(item))
    outcome, rows = ask({**SUMS, "name": "letters", "sha256": "0" * 64})
    assert (outcome["exit_code"], "item one does not fit" in outcome["problem"], rows) == (
        2,
        True,
        (),
    )


def test_server_that_is_gone_is_the_outcome(ask):
    outcome, rows = ask(SUMS, servers="plain=http://127.0.0.1:9 spec=http://127.0.0.1:9")
    assert (outcome["exit_code"], rows) == (3, ())
    assert "10 of 10 items have no answer" in outcome["problem"]


def test_malformed_task_is_the_outcome(ask):
    outcome, _ = ask({"name": "sums"})
    assert (outcome["exit_code"], "this is no task" in outcome["problem"]) == (2, True)
