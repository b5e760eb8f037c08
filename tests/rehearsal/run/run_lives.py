"""A request in a rehearsed world, followed to its end: faults one after another, and what holds at
every moment."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from rehearsal.run.__main__ import build_parser, list_run_words
from rehearsal.run.pod_programs import COMPONENT_LABEL
from rehearsal.run.settings import RunFaults
from rehearsal.run.world import RUNNER_WAIT_S, RunWorld
from tandem.declarations.variant_key import compute_artifact_key
from tandem.guard.fence import FENCE_KEY
from tandem.guard.lease import POINTER_KEY, STOP_PREFIX
from tandem.run.run_keys import ROUND_FILE, RUNNER_KEY, results_prefix, run_record_key

LOOK_S = 1.0
TASK = "additions"  # whose set every run of these lives is asked
END_S = 400
HIDDEN_PREFIXES = ("suites/", "tasks/", "models/", "artifacts/")
RECORD_FILES = ("records.jsonl", "warmup.jsonl", "quality.jsonl")
WORLD = build_parser().parse_args(["--env", "post-us-east-2", "--experiment", "post", "--hold"])
# the command that a held world prints; an account made by hand has no alerts of Guard's budget
WORDS = (*list_run_words(WORLD), "--yes", "--accept-unarmed")


@dataclass(frozen=True, kw_only=True)
class RunLife:
    """What became of a request.

    Args:
        record: run.json. code, output: of the command that asked and followed.
        acting_faults: of the faults, those whose moment came and found somebody to kill.
        unguarded_ids: instances that were seen alive without a lease whose one-shot stop is armed.
    """

    name: str
    record: dict[str, Any]
    code: int
    output: str
    acting_faults: tuple[RunFaults, ...]
    unguarded_ids: tuple[str, ...]


class RunLives:
    """Lives in one world, one after another.

    Args:
        folder: for results.
    """

    def __init__(self, world: RunWorld, folder: Path) -> None:
        self.world, self.folder, self._numbers = world, folder, itertools.count(1)
        self._bucket = world._guard.bucket
        self._prefix = world._guard.prefix

    def live(
        self,
        *options: str,
        faults: Iterable[RunFaults] = (),
        is_new: bool = False,
        is_quick: bool = True,
    ) -> RunLife:
        """Ask for a run, let the faults come, and wait until its end stands in the bucket.

        Args:
            options: of `tandem run`.
            faults: one after another; the next waits for its moment once the one before came.
            is_new: nothing is staged or compiled yet.
            is_quick: the size that asks least.
        """
        name = f"life-{next(self._numbers)}"
        if is_quick:
            options = ("--quick", *options)
        acting_faults = list[RunFaults]()
        unguarded_ids = list[str]()
        if is_new:
            self.forget_artifacts()
        is_over = threading.Event()
        with ThreadPoolExecutor() as pool:
            watcher = pool.submit(self._watch, is_over, unguarded_ids)
            command = pool.submit(
                self.world.account.run_tandem,
                *WORDS,
                "--run",
                name,
                *options,
                timeout=END_S,
                capture_output=True,
            )
            try:
                for fault in faults:
                    self.world.set_faults(fault)
                    while not (command.done() or self.world.has_fault_come()):
                        time.sleep(LOOK_S / 5)
                    if self.world.has_fault_come() and (
                        not fault.killed_component or self.world.count_killed_pods()
                    ):
                        acting_faults.append(fault)
                result = command.result()
                record = self._wait_for_end(name)
            finally:
                is_over.set()
                self.world.set_faults(RunFaults())
            watcher.result()
        output = result.stdout + result.stderr
        return RunLife(
            name=name,
            record=record,
            code=result.returncode,
            output=output,
            acting_faults=tuple(acting_faults),
            unguarded_ids=tuple(unguarded_ids),
        )

    def replace_runner(self) -> None:
        """Delete the runner's pod, and wait for the beat of the one that its Deployment makes
        then."""
        former = self._read(RUNNER_KEY)
        end_s = time.monotonic() + RUNNER_WAIT_S
        self.world.live.call(self._delete_runner)
        while self._read(RUNNER_KEY)["writer"] == former["writer"]:
            assert time.monotonic() < end_s, self.world.read_logs()
            time.sleep(LOOK_S)

    def _delete_runner(self) -> None:
        store = self.world.store
        for pod in store.list_objects("pods", label_selector=f"{COMPONENT_LABEL}=runner"):
            store.delete_object("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def hold_end(self, life: RunLife) -> dict[tuple[str, str], str]:
        """Hold what every end has: no instance, no fence, a lease and a stop at each moment before,
        whole records.

        Returns:
            Class and metric to the judge's word; empty where nothing was judged.
        """
        facts = (life.name, life.acting_faults, life.record, life.output)
        assert (self.world.list_fleet(), self.world.has_object(FENCE_KEY)) == ([], False), facts
        assert life.unguarded_ids == (), facts
        assert life.record["state"] == "judged" or life.record["reason"], facts
        if life.record["state"] != "judged":
            return {}
        folder = self.folder / life.name
        words = ("results", life.name, "--env", "post-us-east-2", "--out", str(folder))
        result = self.world.account.run_tandem(*words, capture_output=True)
        assert result.returncode == 0, (facts, result.stdout + result.stderr)
        records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
        sizes = {
            row["number"]: row["requests"] for row in self._list_rounds(life.name)
        }  # an attempt cut short has none
        assert {record["round"] for record in records} == set(range(life.record["rounds_total"])), (
            facts
        )
        assert (
            len(records) == len({record["request_id"] for record in records}) == sum(sizes.values())
        ), facts
        cells = json.loads((folder / "verdict.json").read_text())["cells"]
        return {(cell["class"], cell["metric"]): cell["verdict"] for cell in cells}

    def read_answers(self, life: RunLife) -> list[str]:
        """Return what the servers of a judged run said to its prompts; `hold_end` comes first."""
        lines = (self.folder / life.name / "records.jsonl").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines]

    def list_shown_texts(self, life: RunLife) -> dict[str, str]:
        """Return all that people see of a run but its records, by place: what was printed, the
        runner's log, metrics, alarms, and each object of the bucket that is no prompt, no record
        and no weight."""
        client = self.world.account.endpoint.client
        s3 = client("s3")
        cloudwatch = client("cloudwatch")
        texts = {
            "printed": life.output,
            "runner's log": self.world.read_logs(),
            "metrics": json.dumps(cloudwatch.list_metrics()["Metrics"], default=str),
            "alarms": json.dumps(cloudwatch.describe_alarms(), default=str),
        }
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket):
            for row in page["Contents"]:
                key = row["Key"]
                if not key.startswith(HIDDEN_PREFIXES) and not key.endswith(RECORD_FILES):
                    body = s3.get_object(Bucket=self._bucket, Key=key)["Body"]
                    texts[key] = body.read().decode(errors="replace")
        return texts

    def forget_artifacts(self) -> None:
        """Leave nothing staged or compiled."""
        s3 = self.world.account.endpoint.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket):
            for row in page.get("Contents", []):
                if row["Key"].startswith(("models/", "artifacts/")):
                    s3.delete_object(Bucket=self._bucket, Key=row["Key"])

    def spoil_artifact(self, arm: str) -> None:
        """Put other bytes of the same length in the place of the largest file of an arm's stored
        artifact."""
        s3, (key,) = (
            self.world.account.endpoint.client("s3"),
            (
                compute_artifact_key(self.world._experiment, variant, self.world._catalogue)
                for variant in self.world._experiment.all_variants()
                if variant.name == arm
            ),
        )
        rows = s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{key.prefix}/")["Contents"]
        largest = max(rows, key=lambda row: row["Size"])
        metadata = s3.head_object(Bucket=self._bucket, Key=largest["Key"])["Metadata"]
        s3.put_object(
            Bucket=self._bucket, Key=largest["Key"], Body=bytes(largest["Size"]), Metadata=metadata
        )

    def _read(self, key: str) -> dict[str, Any] | None:
        s3 = self.world.account.endpoint.client("s3")
        try:
            body = s3.get_object(Bucket=self._bucket, Key=f"{self._prefix}{key}")["Body"]
        except s3.exceptions.NoSuchKey:
            return None
        return json.load(body)

    def _list_rounds(self, name: str) -> list[dict[str, Any]]:
        s3 = self.world.account.endpoint.client("s3")
        prefix = f"{self._prefix}{results_prefix('post', name)}"
        rows = s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix).get("Contents", [])
        keys = [
            row["Key"].removeprefix(self._prefix) for row in rows if row["Key"].endswith(ROUND_FILE)
        ]
        return [document for key in sorted(keys) if (document := self._read(key))]

    def _wait_for_end(self, name: str) -> dict[str, Any]:
        end_s = time.monotonic() + END_S
        record = self._read(run_record_key(name))
        while record is None or record["state"] == "running":
            assert time.monotonic() < end_s, (record, self.world.read_logs())
            time.sleep(LOOK_S)
            record = self._read(run_record_key(name))
        return record

    def _watch(self, is_over: threading.Event, unguarded_ids: list[str]) -> None:
        while not is_over.wait(LOOK_S):
            try:
                unguarded_ids += self._list_unguarded()
            except (BotoCoreError, ClientError):
                continue  # the endpoint is down: whoever asks sees nothing

    def _list_unguarded(self) -> list[str]:
        """Return instances that are alive without a lease whose stop is armed, and still are at a
        second look."""
        alive = {row.id for row in self.world.list_fleet() if row.state in {"pending", "running"}}
        lease = self._read(POINTER_KEY) if alive else None
        schedules = (
            self.world.account.endpoint.client("scheduler").list_schedules()["Schedules"]
            if alive
            else []
        )
        if lease and f"{STOP_PREFIX}{lease.get('run')}" in {row["Name"] for row in schedules}:
            return []
        return sorted(
            alive
            & {row.id for row in self.world.list_fleet() if row.state in {"pending", "running"}}
        )
