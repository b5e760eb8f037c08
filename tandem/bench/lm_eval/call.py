"""Calls of lm-eval: one process for each server, all at once, with the same settings.

Invariant: the answers are as long as the experiment admits and come without thinking. The server itself refuses a
prompt that does not fit next to such an answer, and then lm-eval fails: nothing is cut silently.

Source of the options: lm-eval 0.4.13, `lm_eval --help` and lm_eval/models/api_models.py, read on 2026-11-27.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.lm_eval.samples import list_sample_rows
from tandem.bench.manifest import ManifestArm
from tandem.bench.quality_rows import QualityRow
from tandem.bench.task_items import CONCURRENCY
from tandem.errors import ExternalError

LOG_FILE = "lm-eval.log"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}  # all files of a task are in its set
_NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEvalCall:
    """lm-eval and one of its tasks.

    Args:
        python: interpreter with lm-eval's packages.
        task: name of the task.
        folder: of its YAML and data files; a data file's path is relative to this folder.
        items: most items, the first ones of the task.
        most_tokens: of an answer.
        chance: share of the items that guessing has right.
    """

    python: Path
    task: str
    folder: Path
    items: int
    most_tokens: int
    chance: float = 0.0

    def list_words(self, arm: ManifestArm, out: Path) -> list[str]:
        """Return the command for one server; lm-eval writes its samples below `out`."""
        url = f"{arm.root}/v1/chat/completions"
        model = f"model={arm.model},base_url={url},num_concurrent={CONCURRENCY},tokenized_requests=False"
        answer = {"max_gen_toks": self.most_tokens, **_NO_THINKING}
        return [
            str(self.python), "-m", "lm_eval", "--model", "local-chat-completions", "--model_args", model,
            "--tasks", self.task, "--include_path", str(self.folder.absolute()), "--limit", str(self.items),
            "--apply_chat_template", "--gen_kwargs", json.dumps(answer),
            "--log_samples", "--output_path", str(out.absolute()),
        ]  # fmt: skip

    def ask_servers(self, arms: Sequence[ManifestArm], out: Path) -> list[QualityRow]:
        """Ask every server the task and return the rows of all.

        Args:
            arms: with their addresses.
            out: folder of what lm-eval writes, a folder for each arm.

        Raises:
            InputError: the samples are not of a generated task with an exact match.
            ExternalError: lm-eval failed.
        """
        with ThreadPoolExecutor(len(arms)) as threads:
            parts = threads.map(lambda arm: self._ask_server(arm, out / self.task / arm.name), arms)
            return [row for part in parts for row in part]

    def _ask_server(self, arm: ManifestArm, out: Path) -> list[QualityRow]:
        out.mkdir(parents=True, exist_ok=True)
        with (out / LOG_FILE).open("wb") as log:
            words, variables = self.list_words(arm, out), os.environ | _OFFLINE
            ended = subprocess.run(  # noqa: S603 - the tool's own program
                words, cwd=self.folder, env=variables, stdout=log, stderr=log, check=False
            )
        if ended.returncode:
            lines = (out / LOG_FILE).read_text(errors="replace").strip().splitlines()
            problem = f"lm-eval ended with {ended.returncode}: {lines[-1] if lines else 'it says nothing'}"
            raise ExternalError(problem, where=f"{arm.name}={arm.root}", change=f"read {LOG_FILE} of this arm")
        return list_sample_rows(out, arm.name, chance=self.chance)
