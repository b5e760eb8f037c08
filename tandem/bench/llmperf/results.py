"""What the tool wrote, read; and its requests as records.

Invariant: a record holds what the tool said of a request and nothing that it did not say. It keeps neither ids nor
times of day, neither text nor the server's usage; of a request's chunks it keeps two moments, the first text and the
end of the stream, so a record of it has these two chunks. Its counts of tokens are made with Llama's tokenizer,
whatever was served: they are no completion_tokens and stay in the raw file.

`start_s` is when the call of the tool was begun, the earliest that any of its requests can have started: a record
must have a start, and no figure but the throughput of a whole arm is counted from it, which llmperf's records, without
tokens, do not have. `end_s` is the tool's own end-to-end latency, [DONE] included.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tandem.bench.fault import BenchError
from tandem.bench.llmperf.tool import LlmperfLoad
from tandem.bench.record import Chunk, RequestRecord, split_chunks

GENERATOR: Final = "llmperf"
SUMMARY_PATTERN, ROWS_PATTERN = "*_summary.json", "*_individual_responses.json"
LOWEST_STATUS = 100  # of HTTP; below it, -1, the tool knew no reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmperfRequest:
    """One request, as the tool tells it; a figure that is missing, or no number, is None.

    Args:
        inter_token_latency_s: what the tool calls so: the time to its last text, divided by all data events.
        output_tokens, input_tokens: by Llama's tokenizer.
    """

    error_code: int | None
    error_msg: str
    ttft_s: float | None
    inter_token_latency_s: float | None
    end_to_end_latency_s: float | None
    request_output_throughput_token_per_s: float | None
    output_tokens: int | None
    input_tokens: int | None

    @property
    def has_failed(self) -> bool:
        """Whether the tool noted an error."""
        return self.error_code is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmperfResults:
    """One call's results.

    Args:
        output_throughput_token_per_s: tokens by Llama's tokenizer over the tool's own clock, which starts before its
            workers do.
    """

    rows: tuple[LlmperfRequest, ...]
    output_throughput_token_per_s: float | None

    @property
    def errors(self) -> int:
        """How many rows are errors."""
        return sum(row.has_failed for row in self.rows)


def read_results(folder: Path) -> LlmperfResults | None:
    """Read the results of one call; None where the tool left none, as it does when it crashes.

    Raises:
        BenchError: a file is not what the tool writes.
    """
    rows, summary = (sorted(folder.glob(pattern)) for pattern in (ROWS_PATTERN, SUMMARY_PATTERN))
    if not rows or not summary:
        return None
    entries = _read_json(rows[0])
    if not isinstance(entries, list):
        raise _build_file_error(rows[0], "it holds no list of requests")
    summary_values = _read_json(summary[0])
    if not isinstance(summary_values, dict):
        raise _build_file_error(summary[0], "it holds no summary")
    return LlmperfResults(
        rows=tuple(_parse_request(row, rows[0], number) for number, row in enumerate(entries)),
        output_throughput_token_per_s=_parse_float(summary_values.get("results_mean_output_throughput_token_per_s")),
    )


def build_records(
    results: LlmperfResults, load: LlmperfLoad, *, arm: str, call: int, began_s: float
) -> list[RequestRecord]:
    """Return the requests of one call as records.

    Args:
        results: what the call left.
        load: what it was told.
        arm: name of the server.
        call: number of the call, from 0; it stands as the round.
        began_s: when it was begun, on the monotonic clock.
    """
    return [
        RequestRecord(
            request_id=f"{GENERATOR}-{arm}-{call}-{number}", generator=GENERATOR, arm=arm, class_=GENERATOR,
            suite=GENERATOR, prompt_id="", round=call, concurrency=load.concurrency, start_s=began_s,
            end_s=row.end_to_end_latency_s or 0.0, **split_chunks(_build_chunks(row)), **_error_fields(row),
        )
        for number, row in enumerate(results.rows)
    ]  # fmt: skip


def _build_chunks(row: LlmperfRequest) -> tuple[Chunk, ...]:
    """Return the two moments that the tool knows; 0 stands for what did not happen."""
    first = [Chunk(at_s=row.ttft_s, kind="text")] if row.ttft_s else []
    has_end = row.end_to_end_latency_s and not row.has_failed
    last = [Chunk(at_s=row.end_to_end_latency_s or 0.0, kind="end", tokens=0)] if has_end else []
    return (*first, *last)


def _error_fields(row: LlmperfRequest) -> dict[str, Any]:
    if row.error_code is None:
        return {}
    status = row.error_code if row.error_code >= LOWEST_STATUS else None
    return {
        "error": f"status_{status}" if status else "closed",  # -1: whatever went wrong after or instead of an answer
        "error_detail": row.error_msg or f"llmperf's error code {row.error_code}, without a word",
        "status": status,
    }


def _parse_request(row: Any, path: Path, number: int) -> LlmperfRequest:
    if not isinstance(row, dict):
        raise _build_file_error(path, f"entry {number} is no request")
    return LlmperfRequest(
        error_code=_parse_int(row.get("error_code")),
        error_msg=str(row.get("error_msg") or ""),
        ttft_s=_parse_float(row.get("ttft_s")),
        inter_token_latency_s=_parse_float(row.get("inter_token_latency_s")),
        end_to_end_latency_s=_parse_float(row.get("end_to_end_latency_s")),
        request_output_throughput_token_per_s=_parse_float(row.get("request_output_throughput_token_per_s")),
        output_tokens=_parse_int(row.get("number_output_tokens")),
        input_tokens=_parse_int(row.get("number_input_tokens")),
    )


def _parse_int(value: Any) -> int | None:
    number = _parse_float(value)
    return None if number is None else int(number)


def _parse_float(value: Any) -> float | None:
    """Return a finite number; its writer turns what it cannot encode into text, and Python's NaN is no JSON."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _build_file_error(path, str(error)) from error


def _build_file_error(path: Path, problem: str) -> BenchError:
    return BenchError(
        f"this is no result of llmperf: {problem}", where=str(path), change="keep it, and run the call again"
    )
