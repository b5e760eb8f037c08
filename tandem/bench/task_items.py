"""Items of a task: questions with one right answer, asked of every arm of a run.

Invariant: every arm gets the same requests: greedy, no thinking, the same most tokens. An item without an answer of an
arm is left out for this arm; it is neither right nor wrong.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from tandem.bench.answer import parse_answer
from tandem.bench.client import CompletionClient
from tandem.bench.completion_request import ApiName, CompletionRequest
from tandem.bench.json_file import DECODE_ERRORS
from tandem.bench.manifest import ManifestArm, Timeouts
from tandem.bench.quality_rows import QualityRow
from tandem.errors import ExternalError, InputError, convert_os_errors

OWN_TASK = Path(__file__).parent / "tasks" / "sums.jsonl"
MAX_ANSWER_TOKENS = 64  # of an item that asks for a number or a word alone
CONCURRENCY = 4
MAX_UNANSWERED = 0.1
"""Share of an arm's items without an answer: beyond it the rest would be another task."""


class TaskItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One item.

    Args:
        item: its name.
        prompt: one user message.
        answer: the right answer, a number or a word.
    """

    item: str
    prompt: str
    answer: str


def load_items(path: Path) -> tuple[TaskItem, ...]:
    """Read the items of a task.

    Raises:
        InputError: the file cannot be read, a line is malformed, there is no item, or two have one name.
    """
    change = "write one JSON object a line with item, prompt and answer"
    with convert_os_errors("the task cannot be read", path, "name a file that can be read"):
        content = path.read_bytes()
    try:
        items = tuple(msgspec.json.Decoder(TaskItem).decode_lines(content))
    except DECODE_ERRORS as error:
        raise InputError(f"a line is no item: {error}", where=str(path), change=change) from error
    if not items or len({item.item for item in items}) < len(items):
        raise InputError("it has no item, or two of one name", where=str(path), change=change)
    return items


def is_right(item: TaskItem, text: str) -> bool:
    """Return whether the last number or word of a text is the item's answer; letters of any case."""
    words = re.findall(r"-?\w+(?:[.,]\w+)*", text)
    return bool(words) and words[-1].replace(",", "").casefold() == item.answer.casefold()


async def ask_items(
    arms: Sequence[ManifestArm], items: Sequence[TaskItem], *, task: str, api: ApiName, api_key: str | None = None
) -> list[QualityRow]:
    """Ask every arm every item, at most `CONCURRENCY` at once of each arm.

    Args:
        arms: with their addresses.
        items: of the task.
        task: its name.
        api: of the servers.
        api_key: sent to each.

    Raises:
        ExternalError: an arm left more than a tenth of the items without an answer.
    """
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(CompletionClient(arm, limit=CONCURRENCY, api=api, api_key=api_key))
            for arm in arms
        ]
        parts = await asyncio.gather(*(_ask_arm(client, items, task) for client in clients))
    return [row for part in parts for row in part]


async def _ask_arm(client: CompletionClient, items: Sequence[TaskItem], task: str) -> list[QualityRow]:
    gate, faults = asyncio.Semaphore(CONCURRENCY), list[str]()

    async def ask(item: TaskItem) -> Iterator[QualityRow]:
        request = CompletionRequest(
            request_id=f"{task}-{item.item}", prompt=item.prompt, max_tokens=MAX_ANSWER_TOKENS, thinking=False
        )
        async with gate:
            record = parse_answer(await client.send_request(request, Timeouts()), request)
        if record.error:
            faults.append(f"{item.item}: {record.error}")
            return iter(())
        return iter([QualityRow(task=task, item=item.item, arm=client.arm.name, right=is_right(item, record.text))])

    rows = [row for part in await asyncio.gather(*map(ask, items)) for row in part]
    if len(faults) > MAX_UNANSWERED * len(items):
        problem = f"{len(faults)} of {len(items)} items have no answer; the first: {faults[0]}"
        change = "look into the server's log, then ask again"
        raise ExternalError(problem, where=f"{client.arm.name}={client.arm.root}", change=change)
    return rows
