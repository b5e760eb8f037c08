"""CloudFormation, ECR, CodeBuild and Lambda as far as one function speaks to them, over real HTTP
on this machine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from doubles.loopback import Question, answer_requests

Answer = tuple[int, dict[str, Any]]


@dataclass
class Aws:
    """What each operation answers, and what was asked.

    Args:
        answers: operation -> its answers in order; the last one stays.
        lost: how many of the first answers to CloudFormation get no reply.
    """

    url: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    responses: list[dict[str, Any]] = field(default_factory=list)
    content_types: list[str | None] = field(default_factory=list)
    lost: int = 0

    def answer(self, operation: str, body: dict[str, Any]) -> Answer:
        self.asked[operation].append(body)
        answers = self.answers[operation]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def serving() -> Iterator[Aws]:
    aws = Aws()

    def reply(question: Question) -> tuple[int, dict[str, str], bytes] | None:
        body = json.loads(question.body)
        if question.method == "POST":
            # Lambda alone names its operation by the path
            target = question.headers["X-Amz-Target"] or "Invoke"
            status, result = aws.answer(target.rpartition(".")[2], body)
            return status, {}, json.dumps(result).encode()
        if aws.lost:
            aws.lost -= 1
            return None
        aws.responses.append(body)
        aws.content_types.append(question.headers["Content-Type"])
        return 200, {}, b""

    with answer_requests(reply) as aws.url:
        yield aws
