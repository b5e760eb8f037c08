"""The size of a run without other flags: the default, `--full` and `--quick`.

Invariant: the size is chosen before any request to a server; a more specific flag overrides the
size. Each size has as many rounds as a verdict needs, and a control round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.bench.suites.file_options import NO_OPTIONS, FileOptions
from tandem.bench.suites.suite import BUILT_IN, Suite, load_suite, narrow_suites
from tandem.bench.suites.synthetic import SYNTHETIC_NAME, SyntheticShape
from tandem.errors import InputError

DEFAULT_SUITES = ("real",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSize:
    """Prompts, answers, load and rounds of a run.

    Args:
        prompts_per_class: number of first prompts of each class; None for all.
        max_tokens: most output tokens of an answer; None for the limit of each suite and prompt.
        concurrency: requests in flight, each value a separate load; None for each suite's own.
        classes: the only ones of a suite that has them; other suites use the same number of first
            classes. None: all.
        shortens_files: whether `prompts_per_class` and `max_tokens` also apply to a user's
            FILE.jsonl.
    """

    prompts_per_class: int | None = None
    max_tokens: int | None = None
    concurrency: tuple[int, ...] | None = None
    classes: tuple[str, ...] | None = None
    shortens_files: bool = True

    def select_names(self, names: Sequence[str]) -> Sequence[str]:
        """Return an experiment's suites for this size: all, or `real` if it names its classes."""
        return ["real"] if self.classes and "real" in names else names

    def load_suites(
        self,
        names: Sequence[str | Suite],
        *,
        classes: Sequence[str] = (),
        llmperf_source: Path | None = None,
        options: FileOptions = NO_OPTIONS,
        synthetic: SyntheticShape | None = None,
    ) -> tuple[Suite, ...]:
        """Return the suites of the run, each with the selected classes.

        Args:
            names: of suites, or files, or suites that are read; `real` if empty and nothing is
                synthetic.
            classes: the only ones; if empty, those of the size.
            llmperf_source: checkout of llmperf, for the suite post's eighth case.
            options: what the user says of the files.
            synthetic: prompts to make besides.

        Raises:
            InputError: a suite cannot be read, has none of the classes, or has the name of another.
        """
        default_names = DEFAULT_SUITES if synthetic is None else ()
        suites = []
        for name in dict.fromkeys(names or default_names):
            if isinstance(name, Suite):
                suites.append(name)
            else:
                suite = load_suite(name, llmperf_source=llmperf_source, options=options)
                suites.append(suite)
        if synthetic is not None:
            suites.append(synthetic.draft_suite())
        suite_names = [suite.name for suite in suites]
        twin = next((name for name in suite_names if suite_names.count(name) > 1), None)
        if twin is not None:  # records could not distinguish the suites
            raise InputError(
                f"two suites are named {twin}", where="--suite", change="rename one of the files"
            )
        return narrow_suites(suites, classes) if classes else self.narrow_suites(suites)

    def narrow_suites(self, suites: Sequence[Suite]) -> tuple[Suite, ...]:
        """Return the suites with the classes of the size, the same number for each suite."""
        if self.classes is None:
            return tuple(suites)
        count = len(self.classes)
        names = set(self.classes)
        return tuple(
            suite.select_classes(names if names <= set(suite.classes) else suite.classes[:count])
            for suite in suites
        )

    def fit_files(self, suites: Sequence[Suite]) -> RunSize:
        """Return the size, without its limits where a user's file must not be shortened."""
        names = {suite.name for suite in suites}
        is_shortened = self.shortens_files or names <= BUILT_IN.keys()
        if is_shortened and names != {SYNTHETIC_NAME}:  # its own flag says how long they are
            return self
        return replace(self, prompts_per_class=None, max_tokens=None)


# Eight prompts at concurrency 4 are two halves (A B B A) of one wave each. 560 is the largest
# multiple of ten for which two arms of experiments/post.yaml, each warmed up in three windows, take
# at most 2 h 30 min by estimate.py.
DEFAULT_SIZE = RunSize(prompts_per_class=8, max_tokens=560, concurrency=(4,), shortens_files=False)
FULL_SIZE = RunSize()
# With 192 tokens two arms, each warmed up in three windows, take at most 10 minutes by estimate.py.
QUICK_SIZE = RunSize(
    prompts_per_class=6,
    max_tokens=192,
    concurrency=(4,),
    classes=("repetition", "code-edit", "open-ended"),
)
SIZES = {"quick": QUICK_SIZE, "default": DEFAULT_SIZE, "full": FULL_SIZE}
