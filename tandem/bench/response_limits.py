"""How many bytes of a server's answer are read: every limit stands here, and only here.

Invariant: a limit holds for the bytes as they arrive and again for the bytes after decompression; both are counted
while they are read. An answer of exactly the limit is read whole. docs/bench.md has the same limits as a table.
"""

from __future__ import annotations

METRICS_BYTES = 8 << 20  # one page of /metrics, 8 MiB: a vLLM with all its histograms gives less than 1 MiB
PAGE_BYTES = 1 << 20  # one page of /v1/models, /version or /health, 1 MiB
EVENT_BYTES = 1 << 20  # one SSE event, 1 MiB: all its lines with their ends, without the blank line
ERROR_BODY_BYTES = 64 << 10  # the body of any answer whose status is not 200, 64 KiB
INFLATED_PIECE_BYTES = 256 << 10  # what is decompressed at a time, 256 KiB
STREAM_BYTES = 1 << 20  # of an answer, 1 MiB, and more for each token and each byte of its request
STREAM_BYTES_PER_TOKEN = 4096  # an event with running usage, ids and a few log-probabilities has under 2,000
STREAM_BYTES_PER_REQUEST_BYTE = 8  # prompt_token_ids: at most one id a byte, seven characters each


def compute_stream_bytes(max_tokens: int, request_bytes: int) -> int:
    """Return how many bytes the answer to one request may have.

    Args:
        max_tokens: output tokens that the request allows.
        request_bytes: size of the request's body.
    """
    return STREAM_BYTES + STREAM_BYTES_PER_TOKEN * max_tokens + STREAM_BYTES_PER_REQUEST_BYTE * request_bytes


def describe_excess(answer: str, limit_bytes: int) -> str:
    """Return the sentence for an answer that is longer than its limit.

    Args:
        answer: what is too long, with its address.
        limit_bytes: the limit it exceeds.
    """
    return f"{answer} has more than {limit_bytes:,} bytes"
