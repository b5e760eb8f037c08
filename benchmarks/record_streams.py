"""Record streams of real vLLM servers byte by byte: tests/bench/streams/ (see its README).

    python benchmarks/record_streams.py [--out tests/bench/streams]

Two real servers, one without and one with n-gram speculation, get one request at a time. The
program keeps every read of the socket with its time, and also the pages /metrics, /v1/models and
/version.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stream_recording import CHAT, record_stream, write_recording

from rehearsal.vllm_cpu.errors import VllmSetupError
from rehearsal.vllm_cpu.installation import ensure_python
from rehearsal.vllm_cpu.server import MODEL, NGRAM_SPECULATION, CpuVllmServer
from rehearsal.vllm_cpu.weights import ensure_weights

ROOT = Path(__file__).resolve().parent.parent

OUT = ROOT / "tests" / "bench" / "streams"
LOGS = ROOT / "build" / "real" / "recording"
SETTLE_S = 1.0  # the server adds the counters of the last step after it sends the chunk
COPY = (
    'Copy this JSON exactly: {"name": "Ada", "age": 36, "city": "London", "tags": ["a", "b", "c"]}'
)
SIGNS = "東京 🚀 東京 🚀 東京 🚀"  # each sign is several tokens, none of which is text by itself
STORY = "Write a short story about a lighthouse keeper."
RUNNING = {"include_usage": True, "continuous_usage_stats": True}


class Case(NamedTuple):
    """One request whose answer is kept as `<name>.jsonl`; `more` extends the body."""

    name: str
    arm: str
    prompt: str = COPY
    max_tokens: int = 64
    path: str = CHAT
    more: Mapping[str, Any] = {}

    def body(self) -> dict[str, Any]:
        """Return the body of the request."""
        question: dict[str, Any] = {"prompt": self.prompt}
        if self.path == CHAT:
            question = {"messages": [{"role": "user", "content": self.prompt}]}
        limits = {"max_tokens": self.max_tokens, "temperature": 0.0, "stream": True}
        return {"model": MODEL, **question, **limits, **self.more}


CASES = (
    Case(name="base_chat_no_options", arm="base"),
    Case(name="base_chat_usage", arm="base", more={"stream_options": {"include_usage": True}}),
    Case(
        name="base_chat_length",
        arm="base",
        prompt=STORY,
        max_tokens=16,
        more={"stream_options": RUNNING},
    ),
    Case(name="base_chat_one_token", arm="base", max_tokens=1, more={"stream_options": RUNNING}),
    Case(name="ngram_chat_running_usage", arm="ngram", more={"stream_options": RUNNING}),
    Case(name="ngram_chat_no_options", arm="ngram"),
    Case(name="ngram_chat_usage", arm="ngram", more={"stream_options": {"include_usage": True}}),
    Case(
        name="ngram_chat_token_ids",
        arm="ngram",
        more={"stream_options": RUNNING, "return_token_ids": True},
    ),
    Case(
        name="ngram_chat_logprobs",
        arm="ngram",
        more={"stream_options": RUNNING, "logprobs": True, "top_logprobs": 2},
    ),
    Case(
        name="base_completions_split_characters",
        arm="base",
        path="/v1/completions",
        prompt=SIGNS,
        max_tokens=24,
        more={"stream_options": RUNNING, "return_token_ids": True},
    ),
    Case(
        name="ngram_completions_split_characters",
        arm="ngram",
        path="/v1/completions",
        prompt=SIGNS,
        max_tokens=24,
        more={"stream_options": RUNNING, "return_token_ids": True},
    ),
    Case(
        name="ngram_chat_length",
        arm="ngram",
        prompt=STORY,
        max_tokens=24,
        more={"stream_options": RUNNING},
    ),
    Case(
        name="ngram_completions",
        arm="ngram",
        path="/v1/completions",
        prompt="1 2 3 4 5 1 2 3 4 5 1 2 3",
        max_tokens=32,
        more={"stream_options": RUNNING, "return_token_ids": True},
    ),
    Case(
        name="ngram_completions_logprobs",
        arm="ngram",
        path="/v1/completions",
        prompt="1 2 3 4 5 1 2 3 4 5 1 2 3",
        max_tokens=16,
        more={"stream_options": RUNNING, "logprobs": 2},
    ),
    Case(name="error_404_model", arm="base", more={"model": "another-model"}),
    Case(name="error_400_too_long", arm="base", prompt="word " * 3000, max_tokens=16),
    Case(name="error_400_max_tokens", arm="base", max_tokens=5000),
    Case(name="error_400_temperature", arm="ngram", more={"temperature": -1}),
)
COUNTED = "ngram_chat_running_usage"  # the only case between the two pages of metrics of its server


def main() -> int:
    """Start both servers, record every case; return 3 if vLLM is not available."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the recordings")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    try:
        interpreter = ensure_python()
        weights = ensure_weights(interpreter)
        with contextlib.ExitStack() as stack:
            servers = {}
            for name, speculation in {"base": None, "ngram": NGRAM_SPECULATION}.items():
                server = CpuVllmServer(
                    interpreter=interpreter,
                    weights=weights,
                    name=name,
                    folder=LOGS,
                    speculation=speculation,
                )
                stack.callback(server.stop)
                servers[name] = server.start()
            record_all(servers, out)
    except VllmSetupError as fault:
        print(fault, file=sys.stderr)
        return 3
    return 0


def record_all(servers: dict[str, CpuVllmServer], out: Path) -> None:
    """Record pages and cases, after one request to each server that is not kept."""
    for arm, server in servers.items():
        (out / f"models_{arm}.json").write_text(pretty(server.read_page("/v1/models")))
        (out / f"version_{arm}.json").write_text(pretty(server.read_page("/version")))
        record(server, Case(name="warm-up", arm=arm, max_tokens=8))
    for case in CASES:
        server = servers[case.arm]
        if case.name == COUNTED:
            (out / "metrics_ngram_before.txt").write_text(trimmed(server.read_page("/metrics")))
        lines = record(server, case)
        write_recording(
            out / f"{case.name}.jsonl",
            lines,
            server={"arm": case.arm, "speculation": server.speculation},
            vllm=json.loads(server.read_page("/version"))["version"],
            model="SmolLM2-135M-Instruct",
        )
        print(f"{case.name}: {lines[0]['status']}, {len(lines) - 1} reads", file=sys.stderr)
        time.sleep(SETTLE_S)
        if case.name == COUNTED:
            (out / "metrics_ngram_after.txt").write_text(trimmed(server.read_page("/metrics")))
    (out / "metrics_base.txt").write_text(trimmed(servers["base"].read_page("/metrics")))


def record(server: CpuVllmServer, case: Case) -> list[dict[str, Any]]:
    """Send a request once; return header and a line a read, no text of a very long prompt."""
    header, *reads = asyncio.run(record_stream(server.url, case.path, case.body(), case.name))
    header["request"]["body"] = shortened(case.body())
    return [header, *reads]


def shortened(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body, with a very long prompt cut and marked: tests do not need it."""
    cut: dict[str, Any] = json.loads(json.dumps(body))
    for message in cut.get("messages", ()):
        if len(message["content"]) > 2000:  # noqa: PLR2004  # longer than any of the prompts above that matter
            message["content"] = (
                f"{message['content'][:60]}... ({len(message['content'])} characters)"
            )
    return cut


def trimmed(page: str) -> str:
    """Return vLLM's own metric families, without the Python process's and web framework's."""
    own = ("vllm:", "# HELP vllm:", "# TYPE vllm:")
    return "".join(f"{line}\n" for line in page.splitlines() if line.startswith(own))


def pretty(text: str) -> str:
    """Return JSON with one key a line."""
    return json.dumps(json.loads(text), indent=2) + "\n"


if __name__ == "__main__":
    sys.exit(main())
