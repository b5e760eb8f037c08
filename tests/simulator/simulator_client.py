"""Asking a simulator over real HTTP, with nothing of the bench: raw bytes, events, JSON."""

from __future__ import annotations

import http.client
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

ANSWER_S = 20
CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"


@dataclass
class Answered:
    """What came back. `broken` is how the connection ended, where it did not end in order."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    broken: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> list[str]:
        return [event.removeprefix("data: ") for event in self.body.decode().split("\n\n") if event]

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def text(self) -> str:
        choices = [choice for frame in self.frames for choice in frame["choices"]]
        return "".join(
            choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            for choice in choices
        )


def ask(
    url: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    most_bytes: int = 0,
) -> Answered:
    """Ask once. `most_bytes`: go away after so many of the answer."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ANSWER_S)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    answers = Answered()
    try:
        connection.request("GET" if content is None else "POST", path, content, headers or {})
        response = connection.getresponse()
        answers.status = response.status
        answers.headers = {k.lower(): v for k, v in response.getheaders()}
        while piece := response.read1(65536):
            answers.body += piece
            if most_bytes and len(answers.body) > most_bytes:
                break
    except (http.client.HTTPException, OSError) as error:
        answers.broken = type(error).__name__
    finally:
        connection.close()
    return answers


def chat(prompt: str = "Say something.", **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "temperature": 0,
        **more,
    }


def until(holds: Any, seconds: float = 15) -> bool:
    """Wait for what another thread is about to do; whether it came."""
    ends = time.monotonic() + seconds
    while not holds() and time.monotonic() < ends:
        time.sleep(0.005)
    return bool(holds())
