"""The fit of synthetic prompts to the tokens that a server counts.

Invariant: a prompt has the wanted tokens within TOLERANCE by the count of the first arm that
counts, or the run does not begin. Every arm is sent the same bytes, each prompt at least once, so a
prefix cache of one arm knows no more of them than another's.

A prompt is fitted by its number of words. A server that counts in steps, such as two tokens for a
word, may skip the wanted number: then the word at the step gives way to the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.load.interrupt import StopSignal
from tandem.bench.load.loops import ArmSession, RequestLoops
from tandem.bench.plan.request_plan import PlanBlock, PlanItem, PlanTurn, PromptEntry
from tandem.bench.plan.schedule import LoadLevel
from tandem.bench.plan.settings import RunSettings
from tandem.bench.records.folder import SYNTHETIC_FILE
from tandem.bench.records.record import RequestRecord
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite import Suite, load_suite
from tandem.bench.suites.synthetic import SYNTHETIC_NAME, SyntheticShape
from tandem.errors import ExternalError, InputError, TandemError, convert_os_errors

FLAG = "--synthetic"
TOLERANCE = 0.02
MAX_TRIALS = 24  # for one prompt
MAX_REFUSALS = 3  # of a server that is too busy to count
BUSY_WORDS = ("status_429", "status_503")
REFUSAL_WORDS = ("status_400", "status_413", "status_422")

CountTokens = Callable[[Sequence[str]], Awaitable[int]]
"""Counts the tokens of the prompt with these words."""


class FitError(Exception):
    """No number of words gives the wanted tokens; the text says what was counted."""


class FitInterruptedError(Exception):
    """The run was interrupted meanwhile."""


@dataclass(frozen=True, slots=True)
class PromptFitter:
    """What makes the synthetic prompts of a run fit its servers.

    Args:
        settings: of the run.
        stop: ends the fit early.
        notify: shows a sentence to the operator.
        note: keeps a sentence for a reader of the figures.
    """

    settings: RunSettings
    stop: StopSignal
    notify: Callable[[str], None]
    note: Callable[[str], None]

    async def fit_settings(
        self, arms: Sequence[ArmSession], resumed_folder: Path | None
    ) -> RunSettings:
        """Return the settings with prompts that fit, or as they are if the run was interrupted.

        Args:
            arms: of the run, the baseline first.
            resumed_folder: of a run that goes on, which may have fitted its prompts.

        Raises:
            InputError: no arm counts the tokens of prompts, or none of this size can be made.
            ExternalError: a server does not answer.
        """
        shape = self.settings.synthetic
        if shape is None:
            return self.settings
        suite = None if resumed_folder is None else read_fitted(shape, resumed_folder)
        if suite is None:
            try:
                suite = await self._fit_suite(shape, arms)
            except FitInterruptedError:
                return self.settings
        return self.settings.replace_suite(suite)

    async def _fit_suite(self, shape: SyntheticShape, arms: Sequence[ArmSession]) -> Suite:
        """Return the suite of fitted prompts, each of which every arm was sent.

        Raises:
            FitInterruptedError: the run was interrupted.
            InputError: no arm counts the tokens of prompts, or none of this size can be made.
            ExternalError: a server does not answer.
        """
        counter = next((arm for arm in arms if arm.offers.include_usage), None)
        if counter is None:
            problem = "no server counts the tokens of its prompts (usage.prompt_tokens)"
            change = "send prompts of your own: --suite FILE"
            raise InputError(problem, where=FLAG, change=change)

        size = f"{shape.count} prompts of {shape.input_tokens} tokens"
        self.notify(f"fitting {size}, as {counter.name} counts them")
        prompts = await self._fit_prompts(shape, counter)
        for arm in arms:
            # a whole answer: whether prompt and answer fit together shows here
            await self._send(prompts[0], arm, max_tokens=shape.output_tokens)
            if arm is not counter:
                counts = await self._count_tokens(prompts, arm)
                self._compare_counts(counts, arm.name, counter.name, shape.input_tokens)
        return shape.join_suite(prompts)

    async def _fit_prompts(self, shape: SyntheticShape, counter: ArmSession) -> list[Prompt]:
        """Return every prompt; each fit begins with the number of words of the one before."""
        prompts: list[Prompt] = []
        word_count = shape.input_tokens
        for number in range(1, shape.count + 1):

            async def count_tokens(words: Sequence[str], number: int = number) -> int:
                record = await self._send(shape.write_prompt(number, words), counter)
                return record.prompt_tokens or 0

            words = shape.draw_words(number)
            try:
                fitted = await fit_words(words, shape.input_tokens, word_count, count_tokens)
            except FitError as error:
                problem = f"no prompt of {shape.input_tokens} tokens: {counter.name} {error}"
                raise InputError(problem, where=FLAG, change="name another size: IN/OUT") from error
            word_count = len(fitted)
            prompts.append(shape.write_prompt(number, fitted))
        return prompts

    async def _count_tokens(self, prompts: Sequence[Prompt], arm: ArmSession) -> list[int]:
        """Send an arm the prompts, and return the tokens of those that it counts."""
        records = [await self._send(prompt, arm) for prompt in prompts]
        return [record.prompt_tokens for record in records if record.prompt_tokens]

    def _compare_counts(
        self, counts: Sequence[int], name: str, counter_name: str, wanted: int
    ) -> None:
        """Note that an arm counts other tokens than the arm that the prompts fit."""
        if any(abs(count - wanted) > TOLERANCE * wanted for count in counts):
            self.note(
                f"{name} counts {min(counts)} to {max(counts)} tokens in the prompts for which"
                f" {counter_name} counts {wanted}: tokenizers or chat templates differ"
            )

    async def _send(self, prompt: Prompt, arm: ArmSession, max_tokens: int = 1) -> RequestRecord:
        """Return the record of a prompt.

        Raises:
            FitInterruptedError: the run was interrupted.
            InputError: the server refuses the prompt.
            ExternalError: the server does not answer.
        """
        for _ in range(MAX_REFUSALS):
            record = await self._send_once(prompt, arm, max_tokens)
            if record is None or record.error not in BUSY_WORDS:
                break
        if self.stop.fault is not None:
            raise self.stop.fault
        if record is None or self.stop.is_requested:
            raise FitInterruptedError
        if record.prompt_tokens is None and (record.error or arm.offers.include_usage):
            raise self._describe_failure(record, arm)
        return record

    async def _send_once(
        self, prompt: Prompt, arm: ArmSession, max_tokens: int
    ) -> RequestRecord | None:
        """Send a prompt by the loop that measures, so that it asks as the run will ask."""
        entry = PromptEntry(suite=SYNTHETIC_NAME, prompt=prompt, max_tokens=max_tokens)
        item = PlanItem(index=0, entry=entry, repeat=0, seed=0)
        block = PlanBlock(
            number=0,
            class_=SYNTHETIC_NAME,
            load=LoadLevel(concurrency=1),
            entries=(entry,),
            requests=1,
        )
        turn = PlanTurn(
            round=0, slot=0, block=block, arms=(arm.name,), items=(item,), is_warm_up=True
        )
        records: list[RequestRecord] = []
        loops = RequestLoops(self.settings, _complete_unrecorded, self.stop, {}, records.append)
        await loops.run(arm, turn, turn.items)
        return records[0] if records else None

    def _describe_failure(self, record: RequestRecord, arm: ArmSession) -> TandemError:
        detail = f"{record.error or 'no usage'}: {record.error_detail or 'no detail'}"
        if record.error in REFUSAL_WORDS:
            problem = f"{arm.name} refuses a prompt of about that size ({detail})"
            return InputError(problem, where=FLAG, change="name a smaller size: IN/OUT")
        problem = f"{arm.name} did not count the tokens of a prompt ({detail})"
        change = "check the server's log, then run again"
        return ExternalError(problem, where=FLAG, change=change)


def read_fitted(shape: SyntheticShape, folder: Path) -> Suite | None:
    """Return the prompts that a run has fitted; None if it has none yet.

    Raises:
        InputError: the file is not as the run wrote it.
    """
    path = folder / SYNTHETIC_FILE
    return shape.join_suite(load_suite(path).prompts) if path.exists() else None


def save_fitted(settings: RunSettings, folder: Path) -> None:
    """Keep the fitted prompts of a run as a suite of one's own, for its resume and for others.

    Raises:
        ExternalError: the file cannot be written.
    """
    path = folder / SYNTHETIC_FILE
    if settings.synthetic is None or path.exists():
        return
    suite = next(suite for suite in settings.suites if suite.name == SYNTHETIC_NAME)
    change = "free some space, or name a folder on another disk"
    with convert_os_errors("it cannot be written", path, change, ExternalError):
        path.write_bytes(suite.encode_lines())


async def _complete_unrecorded(complete: Callable[[], RequestRecord]) -> RequestRecord:
    """Return the record of a request before the run, whose folder has no manifest yet."""
    return complete()


async def fit_words(
    words: Sequence[str], wanted: int, first_guess: int, count_tokens: CountTokens
) -> list[str]:
    """Return the first of some words: as many as give the wanted tokens, within TOLERANCE.

    The next number of words supposes one token a word. Where that leaves the bounds of what was
    counted, their middle is tried.

    Args:
        words: more than are needed.
        wanted: tokens.
        first_guess: number of words to begin with.
        count_tokens: the server's count of a prompt with these words.

    Raises:
        FitError: MAX_TRIALS did not meet the wanted tokens, one word is too many, or all words
            are too few.
    """
    words = list(words)
    low = 0
    high = len(words) + 1
    size = first_guess
    for _ in range(MAX_TRIALS):
        count = await count_tokens(words[:size])
        difference = wanted - count
        if abs(difference) <= TOLERANCE * wanted:
            return words[:size]
        if difference > 0:
            low = size
        else:
            high = size
        if high == 1 or low == len(words):
            break
        if high - low == 1:
            del words[low]  # it is the step over the wanted tokens
            high = len(words) + 1
            size = low + 1
            continue
        size += difference
        if not low < size < high:
            size = (low + high) // 2
    noun = "word" if size == 1 else "words"
    raise FitError(f"counts {count} in a prompt of {size} {noun}")
