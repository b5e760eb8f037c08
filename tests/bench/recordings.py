"""What real servers sent, from tests/bench/streams (its README says how they were made)."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from tandem.bench.load.completion_request import CompletionRequest
from tandem.bench.load.reply import ServerReply
from tandem.bench.records.manifest import ServerOffers

FOLDER = Path(__file__).parent / "streams"


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recorded answer."""

    head: dict[str, Any]
    reads: tuple[tuple[int, bytes], ...]

    @property
    def body(self) -> bytes:
        """All that came."""
        return b"".join(piece for _, piece in self.reads)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The JSON events, taken apart here in the plainest way: these servers end every event with
        two newlines."""
        frames = self.body.decode().split("\n\n")
        return [
            json.loads(frame.removeprefix("data: "))
            for frame in frames
            if frame.startswith("data: {")
        ]

    @property
    def reply(self) -> ServerReply:
        """The same, as the client keeps it."""
        return ServerReply(
            0,
            headers_ns=self.head["headers_ns"],
            reads=list(self.reads),
            end_ns=self.reads[-1][0],
            status=self.head["status"],
            headers={"Content-Type": self.head["headers"]["content-type"]},
        )

    @property
    def ask(self) -> CompletionRequest:
        """What was asked."""
        body = self.head["request"]["body"]
        options = body.get("stream_options", {})
        offers = ServerOffers(
            include_usage=options.get("include_usage", False),
            continuous_usage=options.get("continuous_usage_stats", False),
            token_ids=body.get("return_token_ids", False),
            logprobs=bool(body.get("logprobs")),
        )
        return CompletionRequest("r", prompt="x", max_tokens=body["max_tokens"], offers=offers)


@functools.cache
def recorded(name: str) -> Recording:
    """The recording of that name."""
    head, *reads = (FOLDER / f"{name}.jsonl").read_text().splitlines()
    return Recording(
        json.loads(head),
        tuple((read["t_ns"], bytes.fromhex(read["hex"])) for read in map(json.loads, reads)),
    )


ALL = tuple(
    sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.jsonl"))
)
RECORDINGS = tuple(name for name in ALL if recorded(name).head["status"] == 200)
REFUSALS = tuple(name for name in ALL if name not in RECORDINGS)
