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
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tandem.bench.llmperf.tool import LlmperfLoad
from tandem.bench.record import Chunk, RequestRecord, split_chunks
from tandem.errors import InputError

GENERATOR: Final = "llmperf"
SUMMARY_PATTERN, ROWS_PATTERN = "*_summary.json", "*_individual_responses.json"
LOWEST_STATUS = 100  # of HTTP; below it, -1, the tool knew no reason


class LlmperfRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as the tool tells it; a figure that is missing, or no number, is None.

    Args:
        inter_token_latency_s: what the tool calls so: the time to its last text, divided by all data events.
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
    """One call's totals: tokens by Llama's tokenizer over the tool's own clock, which starts before its workers do."""

    results_mean_output_throughput_token_per_s: float | None = None


class LlmperfResults(NamedTuple):
    """One call's results."""

    rows: list[LlmperfRequest]
    totals: LlmperfTotals

    @property
    def errors(self) -> int:
        """How many rows are errors."""
        return sum(row.error_code is not None for row in self.rows)


def read_results(folder: Path) -> LlmperfResults | None:
    """Read the results of one call; None where the tool left none, as it does when it crashes.

    Raises:
        InputError: a file is not what the tool writes.
    """
    contents: list[Any] = []
    for pattern, kind in ((ROWS_PATTERN, list[LlmperfRequest]), (SUMMARY_PATTERN, LlmperfTotals)):
        for path in sorted(folder.glob(pattern))[:1]:
            try:  # by json, because Python wrote NaN into it; not strict, because it writes numpy's numbers as text
                content = json.loads(path.read_bytes(), parse_constant=lambda _: None)
                contents.append(msgspec.convert(content, kind, strict=False))
            except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
                problem, change = f"this is no result of llmperf: {error}", "keep it, and run the call again"
                raise InputError(problem, where=str(path), change=change) from error
    return LlmperfResults(*contents) if len(contents) > 1 else None


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
    records = []
    for number, row in enumerate(results.rows):
        end_s, error = row.end_to_end_latency_s or 0.0, dict[str, Any]()
        chunks = [Chunk(at_s=row.ttft_s, kind="text")] if row.ttft_s else []  # 0 stands for what did not happen
        if row.error_code is not None:  # -1: whatever went wrong after or instead of an answer
            code = int(row.error_code)
            status = code if code >= LOWEST_STATUS else None
            detail = str(row.error_msg or "") or f"llmperf's error code {code}, without a word"
            error = {"error": f"status_{status}" if status else "closed", "error_detail": detail, "status": status}
        elif end_s:
            chunks.append(Chunk(at_s=end_s, kind="end", tokens=0))
        names = {"generator": GENERATOR, "class_": GENERATOR, "suite": GENERATOR, "prompt_id": "", "arm": arm}
        place = {"round": call, "concurrency": load.concurrency, "start_s": began_s, "end_s": end_s}
        values: dict[str, Any] = {**names, **place, **split_chunks(tuple(chunks)), **error}
        records.append(RequestRecord(request_id=f"{GENERATOR}-{arm}-{call}-{number}", **values))
    return records
