"""Items of a task: questions with one right answer, asked of every arm of a run.

Invariant: every arm gets the same requests: greedy, no thinking, the same most tokens. An item
without an answer of an arm is left out for this arm; it is neither right nor wrong.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

from tandem.bench.load.answer import parse_answer
from tandem.bench.load.client import CompletionClient
from tandem.bench.load.completion_request import CompletionRequest
from tandem.bench.plan.run_options import ApiName
from tandem.bench.plan.server_access import IGNORE_EOS, NO_ACCESS, ServerAccess
from tandem.bench.records.json_file import DECODE_ERRORS
from tandem.bench.records.manifest import ManifestArm, ServerOffers, Timeouts
from tandem.bench.records.quality_rows import QualityRow
from tandem.bench.records.record import RequestRecord
from tandem.errors import ExternalError, InputError, convert_os_errors

OWN_TASK = Path(__file__).parent / "tasks" / "sums.jsonl"
ITEMS_FILE = "items.jsonl"  # of a task set that needs no lm-eval
MAX_ANSWER_TOKENS = 64  # of an item that asks for a number or a word alone
CONCURRENCY = 4
REFUSED = "status_400"
MAX_UNANSWERED = 0.01
"""Share of an arm's items without an answer: below the margin of a word, so that they cannot change
it."""


class TaskItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One item.

    Args:
        item: its name.
        prompt: one user message.
        answer: the right answer, a number or a word.
        group: of items that belong together, such as the questions on one passage; empty for none.
    """

    item: str
    prompt: str
    answer: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTask:
    """A task of items.

    Args:
        name: of the task.
        items: to ask.
        chance: share of the items that guessing has right.
        max_prompt_tokens, max_answer_tokens: of each item, in tokens of the server.
    """

    name: str
    items: tuple[TaskItem, ...]
    chance: float = 0.0
    max_prompt_tokens: float = math.inf
    max_answer_tokens: int = MAX_ANSWER_TOKENS


def load_items(path: Path) -> tuple[TaskItem, ...]:
    """Read the items of a task.

    Raises:
        InputError: the file cannot be read, a line is malformed, there is no item, or two have one
            name.
    """
    change = "write one JSON object a line with item, prompt and answer, and a group if it has one"
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
    """Return whether a text's last number or word is the item's answer, ignoring case."""
    words = re.findall(r"-?\w+(?:[.,]\w+)*", text)
    return bool(words) and words[-1].replace(",", "").casefold() == item.answer.casefold()


async def ask_items(
    arms: Sequence[ManifestArm],
    task: ItemTask,
    *,
    api: ApiName,
    access: Mapping[str, ServerAccess] | None = None,
) -> list[QualityRow]:
    """Ask every arm every item, at most `CONCURRENCY` at once of each arm.

    Args:
        arms: with their addresses.
        task: its items.
        api: of the servers.
        access: key and headers of the arms that have some, by name.

    Raises:
        InputError: a prompt is too long, or a server refuses one.
        ExternalError: an arm left more than a hundredth of the items without an answer.
    """
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                CompletionClient(
                    arm, limit=CONCURRENCY, api=api, access=(access or {}).get(arm.name, NO_ACCESS)
                )
            )
            for arm in arms
        ]
        parts = await asyncio.gather(*(_ask_arm(client, task) for client in clients))
    return list(chain.from_iterable(parts))


async def _ask_arm(client: CompletionClient, task: ItemTask) -> list[QualityRow]:
    gate = asyncio.Semaphore(CONCURRENCY)

    async def ask(item: TaskItem) -> RequestRecord:
        async with gate:
            return await _ask_item(client, task, item)

    records = await asyncio.gather(*map(ask, task.items))
    answers = list(zip(task.items, records, strict=True))
    faults = [f"{item.item}: {record.error}" for item, record in answers if record.error]
    if len(faults) > MAX_UNANSWERED * len(task.items):
        problem = f"{len(faults)} of {len(task.items)} items have no answer; the first: {faults[0]}"
        change = "look into the server's log, then ask again"
        raise ExternalError(problem, where=_name_server(client.arm), change=change)
    return [
        QualityRow(
            task=task.name,
            item=item.item,
            arm=client.arm.name,
            right=is_right(item, record.text),
            chance=task.chance,
            group=item.group,
        )
        for item, record in answers
        if not record.error
    ]


async def _ask_item(client: CompletionClient, task: ItemTask, item: TaskItem) -> RequestRecord:
    """Return the answer to one item.

    Raises:
        InputError: the prompt is too long, or the server refuses it.
    """
    own_fields = client.arm.extra_body.items()
    request = CompletionRequest(
        request_id=f"{task.name}-{item.item}",
        prompt=item.prompt,
        max_tokens=task.max_answer_tokens,
        thinking=False,
        offers=ServerOffers(include_usage=client.arm.offers.include_usage),
        extra_body={name: value for name, value in own_fields if name != IGNORE_EOS},
        left_out=client.arm.left_out,
    )
    record = parse_answer(await client.send_request(request, Timeouts()), request)
    if record.error == REFUSED or (record.prompt_tokens or 0) > task.max_prompt_tokens:
        cause = record.error_detail or f"{record.prompt_tokens} prompt tokens"
        change = "leave long items out, or raise max_prompt_tokens of the experiment"
        problem = f"item {item.item} does not fit: {cause}"
        raise InputError(problem, where=_name_server(client.arm), change=change)
    return record


def _name_server(arm: ManifestArm) -> str:
    return f"{arm.name}={arm.root}"
