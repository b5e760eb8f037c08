"""The journal of a run: one object for the run and each step; a write replaces the version read.

Invariant: of two runners the one that writes second loses at once. The bucket has every decision,
so a new runner goes on where any other stopped. A write whose answer was lost is read back and
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from tandem.bench.records.json_file import require_schema
from tandem.errors import ExternalError, SchemaError
from tandem.guard.bucket import BucketObject, read_object, write_object
from tandem.guard.config import AwsClients, GuardConfig
from tandem.guard.values import convert_call_errors
from tandem.run.run_keys import RUNS_PREFIX, run_record_key, step_key, steps_prefix
from tandem.run.run_values import SCHEMA, RunRecord, StepRecord

RETRY_ADVICE = "the runner tries again"
Value = TypeVar("Value", bound=msgspec.Struct)


class LostRunError(Exception):
    """Another runner wrote first: this one must end at once."""


class StoredValueError(ExternalError):
    """A stored object of ours that cannot be parsed."""


class ObjectFile:
    """Objects of an environment's bucket that hold our values, with their ETags at the last read.

    Args:
        clients, config: of the environment.
        writer: the runner that writes here, by its pod's uid; empty for people, who write requests.
        require_seat: of a runner, raises LostRunError if another runner is at work; see
            tandem/run/runner_seat.py.
    """

    def __init__(
        self,
        clients: AwsClients,
        config: GuardConfig,
        writer: str = "",
        require_seat: Callable[[], None] = lambda: None,
    ) -> None:
        self.clients = clients
        self.config = config
        self.writer = writer
        self.require_seat = require_seat
        self._etags: dict[str, str] = {}

    def at_root(self) -> ObjectFile:
        """Return the same bucket without the environment's prefix; results are there."""
        if not self.config.prefix:
            return self
        return ObjectFile(self.clients, replace(self.config, prefix=""))

    def read(self, key: str, kind: type[Value]) -> Value | None:
        """Return the value at a key; None if there is none.

        Raises:
            ExternalError: S3 failed.
            StoredValueError: the object is no such value, or one of another schema.
        """
        stored = self._get(key)
        if stored is None:
            return None
        self._etags[key] = stored.etag
        url = self.config.url(key)
        try:
            require_schema(stored.body, SCHEMA, label="it", where=url)
            return msgspec.json.decode(stored.body, type=kind)
        except SchemaError as error:
            raise StoredValueError(error.problem, where=url, change=error.change) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoredValueError(
                f"it cannot be parsed: {error}", where=url, change="see docs/run-steps.md"
            ) from error

    def read_bytes(self, key: str) -> bytes:
        """Return the bytes at a key; empty if there is no object.

        Raises:
            ExternalError: S3 failed.
        """
        stored = self._get(key)
        return stored.body if stored else b""

    def _get(self, key: str) -> BucketObject | None:
        with convert_call_errors(f"reading {key}", self.config.url(key), RETRY_ADVICE):
            return read_object(self.clients, self.config, key)

    def write(self, key: str, value: msgspec.Struct) -> None:
        """Write a value over the version that was read, or where there was none.

        Raises:
            LostRunError: somebody else wrote meanwhile, or another runner is at work and the key is
                new to this one.
            ExternalError: S3 failed; the value may be there.
        """
        if key not in self._etags:  # no version to lose by
            self.require_seat()
        if self._put(key, value):
            return
        stored = self.read(key, type(value))
        writer = getattr(value, "writer", "")
        if stored == value:  # the write arrived, its answer was lost
            return
        # an earlier write of this runner whose answer was lost is no stranger's
        if not writer or getattr(stored, "writer", "") != writer or not self._put(key, value):
            raise LostRunError(key)

    def _put(self, key: str, value: msgspec.Struct) -> bool:
        """Write a value over the version that was read; return whether nobody wrote first."""
        document = msgspec.to_builtins(value)
        with convert_call_errors(f"writing {key}", self.config.url(key), RETRY_ADVICE):
            etag = write_object(
                self.clients, self.config, key, document, etag=self._etags.get(key, "")
            )
        if etag is not None:
            self._etags[key] = etag
        return etag is not None

    def list_keys(
        self, prefix: str, *, delimiter: str = ""
    ) -> Iterator[tuple[str, int, datetime | None]]:
        """Yield key, size and time of objects below a prefix; with a delimiter folders, of size 0.

        Raises:
            ExternalError: S3 failed.
        """
        full = self.config.prefix + prefix
        token = ""
        while True:
            query = {
                "Bucket": self.config.bucket,
                "Prefix": full,
                "Delimiter": delimiter,
                "ContinuationToken": token,
            }
            with convert_call_errors(f"listing {prefix}", self.config.url(prefix), RETRY_ADVICE):
                answer = self.clients.s3.list_objects_v2(
                    **{name: text for name, text in query.items() if text}
                )
            for row in answer.get("CommonPrefixes", []):
                yield row["Prefix"].removeprefix(self.config.prefix), 0, None
            for row in answer.get("Contents", []):
                yield row["Key"].removeprefix(self.config.prefix), row["Size"], row["LastModified"]
            token = answer.get("NextContinuationToken", "")
            if not token:
                return

    def write_text(self, key: str, text: str) -> None:
        """Write a text over any object at the key.

        Raises:
            ExternalError: S3 failed.
        """
        with convert_call_errors(f"writing {key}", self.config.url(key), RETRY_ADVICE):
            self.clients.s3.put_object(
                Bucket=self.config.bucket,
                Key=self.config.prefix + key,
                Body=text.encode(),
                ContentType="text/plain",
            )


class RunJournal:
    """One run and its steps, as the bucket has them."""

    def __init__(
        self, file: ObjectFile, run: RunRecord, steps: dict[str, StepRecord] | None = None
    ) -> None:
        self.file = file
        self.run = run
        self.steps: dict[str, StepRecord] = steps or {}

    @classmethod
    def load(cls, file: ObjectFile, run: str) -> RunJournal | None:
        """Read a run; None if there is none.

        Raises:
            ExternalError: S3 failed, or an object cannot be parsed.
        """
        record = file.read(run_record_key(run), RunRecord)
        if record is None:
            return None
        steps = dict[str, StepRecord | None]()
        # an end is written before the step that it ends is marked as failed: whoever saw the mark
        # sees the end
        while new_keys := [
            key for key, _, _ in file.list_keys(steps_prefix(run)) if key not in steps
        ]:
            steps |= {key: file.read(key, StepRecord) for key in new_keys}
        return cls(file, record, {step.step: step for step in steps.values() if step})

    def write_run(self, **changes: Any) -> None:
        """Write the run with some fields changed.

        Raises:
            LostRunError: another runner wrote first.
            ExternalError: S3 failed.
        """
        record = msgspec.structs.replace(self.run, writer=self.file.writer, **changes)
        if record != self.run:
            self.file.write(run_record_key(record.run), record)
            self.run = record

    def write_step(self, index: int, record: StepRecord) -> StepRecord:
        """Write one step, and return it as it is written.

        Raises:
            LostRunError: another runner wrote first.
            ExternalError: S3 failed.
        """
        record = msgspec.structs.replace(record, writer=self.file.writer)
        if self.steps.get(record.step) != record:
            self.file.write(step_key(record.run, index, record.step), record)
            self.steps[record.step] = record
        return record


def list_runs(file: ObjectFile) -> list[str]:
    """Return the ids of all runs, in alphabetical order; a lease by hand has no run.

    Raises:
        ExternalError: S3 failed.
    """
    folders = (key for key, _, _ in file.list_keys(RUNS_PREFIX, delimiter="/"))
    return [folder.removeprefix(RUNS_PREFIX).removesuffix("/") for folder in folders]
