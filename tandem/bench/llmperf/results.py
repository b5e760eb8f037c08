"""The tool's result files, and its requests as records.

Invariant: a record has only facts that the tool reports. The tool keeps no ids, times of day, text
or server's usage; of a request's chunks it keeps two times, the first text and the end of the
stream, so a record has these two chunks. The tool counts tokens with Llama's tokenizer, whatever
the served model: these counts are no completion_tokens and stay in the raw file.

`start_s` is the start of the tool's call, the earliest possible start of its requests: a record
must have a start, and only the throughput of a whole arm depends on it; llmperf's records, without
tokens, have no throughput. `end_s` is the tool's own end-to-end latency, including [DONE].
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tandem.bench.llmperf.tool import LlmperfLoad
from tandem.bench.records.record import SCHEMA, Chunk, RequestRecord, split_chunks
from tandem.errors import InputError

GENERATOR: Final = "llmperf"
SUMMARY_PATTERN = "*_summary.json"
ROWS_PATTERN = "*_individual_responses.json"
LOWEST_STATUS = 100  # of HTTP; the tool writes -1 for an unknown reason


class LlmperfRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the tool's results; a missing or non-numeric figure is None.

    Args:
        inter_token_latency_s: by the tool's definition: the time to its last text, divided by all
            data events.
        number_output_tokens, number_input_tokens: by Llama's tokenizer.
    """

    error_msg: Any = None
    error_code: float | None = None
    ttft_s: float | None = None
    inter_token_latency_s: float | None = None
    end_to_end_latency_s: float | None = None
    request_output_throughput_token_per_s: float | None = None
    number_output_tokens: float | None = None
    number_input_tokens: float | None = None


class LlmperfTotals(msgspec.Struct, frozen=True, kw_only=True):
    """One call's totals: tokens by Llama's tokenizer over the tool's own, longer clock."""

    results_mean_output_throughput_token_per_s: float | None = None


class LlmperfResults(NamedTuple):
    """One call's results."""

    rows: list[LlmperfRequest]
    totals: LlmperfTotals

    @property
    def errors(self) -> int:
        """Number of rows with an error."""
        return sum(row.error_code is not None for row in self.rows)


def read_results(folder: Path) -> LlmperfResults | None:
    """Return the results of one call; None if the tool left none, e.g. after a crash.

    Raises:
        InputError: a file is no result of the tool.
    """
    contents: list[Any] = []
    for pattern, kind in ((ROWS_PATTERN, list[LlmperfRequest]), (SUMMARY_PATTERN, LlmperfTotals)):
        for path in sorted(folder.glob(pattern))[:1]:
            # json, because the tool writes NaN; not strict, because the tool writes numpy's numbers
            # as text
            try:
                content = json.loads(path.read_bytes(), parse_constant=lambda _: None)
                contents.append(msgspec.convert(content, kind, strict=False))
            except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
                problem = f"this is no result of llmperf: {error}"
                change = "keep it, and run the call again"
                raise InputError(problem, where=str(path), change=change) from error
    return LlmperfResults(*contents) if len(contents) > 1 else None


def build_records(
    results: LlmperfResults, load: LlmperfLoad, *, arm: str, call: int, began_s: float
) -> list[RequestRecord]:
    """Return the requests of one call as records.

    Args:
        results: of the call.
        load: of the call.
        arm: name of the server.
        call: number of the call, from 0; the record's round.
        began_s: start of the call in seconds on the monotonic clock.
    """
    records = []
    for number, row in enumerate(results.rows):
        end_s = row.end_to_end_latency_s or 0.0
        # the tool writes 0 if none came
        chunks = [Chunk(at_s=row.ttft_s, kind="text")] if row.ttft_s else []
        if row.error_code is None and end_s:
            chunks.append(Chunk(at_s=end_s, kind="end", tokens=0))
        record = RequestRecord(
            schema=SCHEMA,
            request_id=f"{GENERATOR}-{arm}-{call}-{number}",
            generator=GENERATOR,
            arm=arm,
            class_=GENERATOR,
            suite=GENERATOR,
            prompt_id="",
            round=call,
            concurrency=load.concurrency,
            start_s=began_s,
            end_s=end_s,
            reconnected=0,
            **split_chunks(chunks),
            **_describe_error(row),
        )
        records.append(record)
    return records


def _describe_error(row: LlmperfRequest) -> dict[str, Any]:
    """Return the fields of a failed request; none of another one."""
    if row.error_code is None:
        return {}
    code = int(row.error_code)  # -1: any other fault, after or instead of an answer
    status = code if code >= LOWEST_STATUS else None
    return {
        "error": f"status_{status}" if status else "closed",
        "error_detail": str(row.error_msg or "") or f"llmperf's error code {code}, without a word",
        "status": status,
    }
