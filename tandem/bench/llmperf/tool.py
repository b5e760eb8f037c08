"""The tool as a program: what it needs to start, its command line, its variables.

Invariant: it runs as published and as the post ran it; what it is told stands in `LlmperfLoad`, and nothing
else differs between two servers.

The tool seeds its own prompts with a constant, so every call sends the same prompts, whatever the seed; the seed that
is given here reaches the server as a sampling parameter and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen
from typing import Any

from tandem.bench.fault import BenchError
from tandem.bench.llmperf.source import PACKAGES, SCRIPT
from tandem.bench.llmperf.tokenizer import FOLDER, NAME

# its own limit on a silent server, in its OpenAI client; nothing on its command line changes it
REQUEST_LIMIT_S = 180.0
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",  # it forks
    "RAY_AUTH_MODE": "disabled",  # else Ray writes a token into the home folder
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "300000",  # Ray's 30 s are too few on a busy machine, and all of it dies with them
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmperfTool:
    """What the tool is started from.

    Args:
        source: checkout of its commit.
        python: interpreter that has its packages.
        home: working directory; holds the tokenizer's folder.
    """

    source: Path
    python: Path
    home: Path

    def require(self) -> None:
        """Pass if it can start.

        Raises:
            BenchError: a part of it is not there.
        """
        tokenizer_hint = "make it by: python -m tandem.bench.llmperf.tokenizer, and name its folder by --home"
        for path, change in (
            (self.source / SCRIPT, "name the checkout of llmperf by --source"),
            (self.python, "name the Python that has llmperf's packages by --python"),
            (self.home / FOLDER / NAME, tokenizer_hint),
        ):
            if not path.exists():
                raise BenchError("it is not there", where=str(path), change=change)

    def start_process(self, command: Sequence[str], output: Path, variables: Mapping[str, str]) -> Popen[bytes]:
        """Start a program of the tool that leads a group, with this process's variables and what keeps it offline.

        Args:
            command: its words.
            output: file that takes what it prints.
            variables: further ones.
        """
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        environment = {**own, **OFFLINE, "PYTHONPATH": str(self.source / PACKAGES), "PATH": path, **variables}
        options: dict[str, Any] = {"stdin": DEVNULL, "stderr": STDOUT, "start_new_session": True}
        with output.open("wb") as file:
            return Popen(command, cwd=self.home, env=environment, stdout=file, **options)  # noqa: S603 - its own program


@dataclass(frozen=True, kw_only=True)
class LlmperfLoad:
    """One call's load; the defaults are the post's.

    Args:
        model: name that the servers go by.
        input_tokens, output_tokens: by the tool's own tokenizer; the latter is sent as max_tokens.
        temperature, seed: sent with each request; None is not sent.
        concurrency: requests at once.
        requests: results that are counted; the tool sends more.
        timeout_s: after which the tool starts no further request.
        extra_sampling: further sampling parameters.
    """

    model: str
    input_tokens: int = 64
    output_tokens: int = 600
    temperature: float | None = 0.0
    seed: int | None = None
    concurrency: int = 4
    requests: int = 8
    timeout_s: int = 600
    extra_sampling: Mapping[str, object] | None = None

    def sampling(self) -> dict[str, object]:
        """Return what is sent beside model, messages and max_tokens."""
        parameters = {"temperature": self.temperature, "seed": self.seed, **(self.extra_sampling or {})}
        return {name: value for name, value in parameters.items() if value is not None}

    def arguments(self, results: Path) -> list[str]:
        """Return the tool's arguments for one call that writes its results into a folder."""
        return [
            *("--model", self.model, "--llm-api", "openai", "--timeout", str(self.timeout_s)),
            *("--mean-input-tokens", str(self.input_tokens), "--stddev-input-tokens", "0"),
            *("--mean-output-tokens", str(self.output_tokens), "--stddev-output-tokens", "0"),
            *("--max-num-completed-requests", str(self.requests)),
            *("--num-concurrent-requests", str(self.concurrency), "--results-dir", str(results)),
            *("--additional-sampling-params", json.dumps(self.sampling())),
        ]
