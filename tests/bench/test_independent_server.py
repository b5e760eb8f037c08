"""The second server: it keeps its schedule in order, logs what it did, and shares no code with what it checks."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from one_request import LONG, address, asking, run

from tandem.bench import answer
from tandem.bench.client import CompletionClient

PROGRAM = Path(__file__).with_name("independent_server.py")


def test_it_imports_the_standard_library_alone() -> None:
    imports = [
        node for node in ast.walk(ast.parse(PROGRAM.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {getattr(node, "module", None) or alias.name for node in imports for alias in node.names}

    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == set()


def test_it_runs_as_a_program_and_logs_every_write(tmp_path: Path) -> None:
    log = tmp_path / "truth.jsonl"
    command = [sys.executable, str(PROGRAM), "--port", "0", "--log", str(log), "--step-ms", "1", "--bursts", "4"]
    with subprocess.Popen([*command, "--tokens", "8"], stdout=subprocess.PIPE, text=True) as process:
        port = int(re.search(r":(\d+)$", process.stdout.readline().strip()).group(1))

        async def what(_: CompletionClient, server) -> str | None:
            server.port = port
            async with CompletionClient(address(server), limit=1) as client:
                reply = await client.send_request(asking(request_id="r-9"), LONG)
            return answer.parse_answer(reply, asking()).error

        error = run(what)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models") as page:
            models = json.load(page)
        process.terminate()
    truths = [json.loads(line) for line in log.read_text().splitlines()]
    posted = next(truth for truth in truths if truth["method"] == "POST")
    assert (error, models["data"][0]["id"]) == (None, "independent")
    assert (posted["request_id"], [size for _, size in posted["bursts"]]) == ("r-9", [4, 4])
    assert posted["connected_s"] <= posted["accepted_s"] <= posted["bursts"][0][0] <= posted["writes"][-1][0]
