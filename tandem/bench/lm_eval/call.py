"""Calls of lm-eval: one process for each server, all at once, with the same settings.

Invariant: greedy answers without thinking, at most as long as the experiment admits. A prompt that
does not fit fails the task: the server refuses it beside such an answer, and counts the tokens of
all others. No process stays behind.

Source of the options: lm-eval 0.4.13, `lm_eval --help` and lm_eval/models/api_models.py, read on
2026-11-27.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tandem.bench.lm_eval.samples import list_prompts, list_sample_rows
from tandem.bench.records.manifest import ManifestArm
from tandem.bench.records.quality_rows import QualityRow
from tandem.bench.suites.task_items import CONCURRENCY
from tandem.errors import ExternalError, InputError

LOG_FILE = "lm-eval.log"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}  # all files of a task are in its set
_NO_THINKING = {"enable_thinking": False}
_GREEDY = {"do_sample": False, "temperature": 0, "chat_template_kwargs": _NO_THINKING}
LOOK_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEvalCall:
    """lm-eval and one of its tasks.

    Args:
        python: interpreter with lm-eval's packages.
        task: name of the task.
        folder: of its YAML and data files; a data file's path is relative to this folder.
        items: most items, the first ones of the task.
        max_prompt_tokens, max_tokens: of a prompt and an answer, in tokens of the server.
        chance: share of the items that guessing has right.
        group: field of the task's documents that names an item's group; None for the usual one.
    """

    python: Path
    task: str
    folder: Path
    items: int
    max_prompt_tokens: int
    max_tokens: int
    chance: float = 0.0
    group: str | None = None

    def list_words(self, arm: ManifestArm, out: Path) -> list[str]:
        """Return the command for one server; lm-eval writes its samples below `out`."""
        url = f"{arm.api_root}/chat/completions"
        model = (
            f"model={arm.model},base_url={url},num_concurrent={CONCURRENCY},"
            "tokenized_requests=False"
        )
        answer = {"max_gen_toks": self.max_tokens, **_GREEDY}
        return [
            str(self.python),
            "-m",
            "lm_eval",
            "--model",
            "local-chat-completions",
            "--model_args",
            model,
            "--tasks",
            self.task,
            "--include_path",
            str(self.folder.absolute()),
            "--limit",
            str(self.items),
            "--apply_chat_template",
            "--gen_kwargs",
            json.dumps(answer),
            "--log_samples",
            "--output_path",
            str(out.absolute()),
        ]

    def ask_servers(self, arms: Sequence[ManifestArm], out: Path) -> list[QualityRow]:
        """Ask every server the task and return the rows of all.

        Args:
            arms: with their addresses, the baseline first.
            out: folder of what lm-eval writes, a folder for each arm.

        Raises:
            InputError: the samples are not of a generated task with an exact match, or a prompt is
                too long.
            ExternalError: lm-eval failed, or the baseline does not count tokens.
        """
        folders = [out / self.task / arm.name for arm in arms]
        with ExitStack() as stack:
            processes = list[subprocess.Popen[bytes]]()
            for arm, folder in zip(arms, folders, strict=True):
                processes.append(stack.enter_context(self._start(arm, folder)))
                stack.callback(processes[-1].terminate)  # before its own end, which would wait
            codes = [process.poll() for process in processes]
            while None in codes and not any(codes):
                time.sleep(LOOK_S)
                codes = [process.poll() for process in processes]
            for arm, folder, code in zip(arms, folders, codes, strict=True):
                if code:
                    raise _build_fault(arm, code, folder / LOG_FILE)
        self._check_prompts(arms[0], folders[0])
        rows: list[QualityRow] = []
        for arm, folder in zip(arms, folders, strict=True):
            rows += list_sample_rows(folder, arm.name, chance=self.chance, group=self.group)
        return rows

    def _start(self, arm: ManifestArm, out: Path) -> subprocess.Popen[bytes]:
        out.mkdir(parents=True, exist_ok=True)
        with (out / LOG_FILE).open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - the tool's own program
                self.list_words(arm, out),
                cwd=self.folder,
                env=os.environ | _OFFLINE,
                stdout=log,
                stderr=log,
            )

    def _check_prompts(self, arm: ManifestArm, out: Path) -> None:
        """Refuse a prompt with more tokens than the experiment serves, by vLLM's /tokenize."""
        for messages in list_prompts(out):
            body = {
                "model": arm.model,
                "messages": json.loads(messages),
                "chat_template_kwargs": _NO_THINKING,
            }
            request = urllib.request.Request(  # noqa: S310 - an address of our own
                f"{arm.root}/tokenize",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                    count = json.load(answer)["count"]
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                problem = f"it does not count the tokens of a prompt: {error}"
                change = "look into the server's log"
                raise ExternalError(problem, where=arm.root, change=change) from error
            if count > self.max_prompt_tokens:
                problem = (
                    f"a prompt of {self.task} has {count} tokens, above max_prompt_tokens,"
                    f" {self.max_prompt_tokens}"
                )
                raise InputError(
                    problem, where=arm.root, change="take a shorter task, or raise the limit"
                )


def _build_fault(arm: ManifestArm, code: int, log: Path) -> ExternalError:
    """Return why lm-eval ended: the server's refusal if any, else the last line of its log."""
    lines = log.read_text(errors="replace").strip().splitlines() or ["it says nothing"]
    line = next((line for line in lines if "API request failed" in line), lines[-1])
    place = f"read {log.parent.parent.name}/{arm.name}/{LOG_FILE} in the results of the Job"
    return ExternalError(
        f"lm-eval ended with {code}: {line}", where=f"{arm.name}={arm.root}", change=place
    )
