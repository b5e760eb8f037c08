"""How a file of one's own becomes a suite: what the user says beside its name.

Invariant: the same options and the same bytes give the same prompts, on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tandem.bench.suites.prompt import Prompt
from tandem.errors import InputError

ONE_CLASS = "prompts"
"""The class of all prompts of a file without classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """What a user says of the files of a run.

    Args:
        prompt_column: column or key with the prompts; None where a file names it `prompt`,
            `messages` or `conversations`.
        class_field: column or key with the class of each prompt; None for one class.
        turns: turns of the user that are sent of a recorded conversation, with the file's own
            answers in between; None for the first of a conversation that ends with an answer, and
            for all of one that ends with the user.
        sample: number of prompts to draw; None for all.
        seed: of the draw.
        is_declared: whether an experiment's keys say it, and not the flags of a command.
    """

    prompt_column: str | None = None
    class_field: str | None = None
    turns: int | None = None
    sample: int | None = None
    seed: int = 0
    is_declared: bool = False

    def name_option(self, name: str, value: str = "") -> str:
        """Return how the user states an option, such as `--turns 2` or `turns: 2`."""
        if self.is_declared:
            return f"{name}: {value}" if value else name
        return f"--{name.replace('_', '-')} {value}".rstrip()

    def draw_sample(self, prompts: Sequence[Prompt], where: str) -> tuple[Prompt, ...]:
        """Return as many prompts as the sample has, in their order; each is equally likely.

        Raises:
            InputError: there are fewer prompts.
        """
        if self.sample is None:
            return tuple(prompts)
        if self.sample > len(prompts):
            problem = f"a sample of {self.sample} prompts from {len(prompts)}"
            flag = self.name_option("sample")
            change = f"{flag} takes at most {len(prompts)} here; without it, all are sent"
            raise InputError(problem, where=where, change=change)
        generator = random.Random(f"sample/{self.seed}")  # noqa: S311 - repeatable, no secret
        places = generator.sample(range(len(prompts)), self.sample)
        return tuple(prompts[place] for place in sorted(places))


NO_OPTIONS = FileOptions()
"""Of a user who says nothing."""
