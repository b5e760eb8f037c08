"""Records one answer of a server, byte by byte, as tests/bench/streams keeps it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

CHAT = "/v1/chat/completions"


async def record_stream(
    url: str, path: str, body: Mapping[str, Any], request_id: str
) -> list[dict[str, Any]]:
    """Send a request once; return the header, and one line a read of the socket with its time.

    Args:
        url: of the server.
        path: of the request.
        body: of the request.
        request_id: sent with it.
    """
    async with aiohttp.ClientSession(read_bufsize=2**20) as session:
        start_ns = time.monotonic_ns()
        async with session.post(
            f"{url}{path}", json=body, headers={"X-Request-Id": request_id}
        ) as answer:
            headers_ns = time.monotonic_ns() - start_ns
            reads = [
                {"t_ns": time.monotonic_ns() - start_ns, "hex": piece.hex()}
                async for piece in answer.content.iter_any()
            ]
    header = {
        "request": {"method": "POST", "path": path, "body": body},
        "recorded_utc": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "status": answer.status,
        "headers": {
            name.lower(): value for name, value in answer.headers.items() if name.lower() != "date"
        },
        "headers_ns": headers_ns,
    }
    return [header, *reads]


def write_recording(path: Path, lines: list[dict[str, Any]], **facts: Any) -> None:
    """Write a recording, with further facts in its header."""
    header = lines[0] | facts
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *lines[1:])))
