"""A suite: the prompts a measurement asks, where they come from, and a hash that says whether two are the same.

Invariant: the hash covers what is asked and how its answers are checked, in order; nothing of a file's spelling, and
nothing outside of it. Loading never reads the network.

What the load needs of suites stands here in one place: `Prompt`, `Suite`, `load_suite`, `check_content`.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.bench.suites.content import check_content
from tandem.bench.suites.fault import SuiteError, SuiteFault
from tandem.bench.suites.llmperf_text import OMISSION_NOTE, read_llmperf_prompts
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite_file import read_prompts

__all__ = ["Prompt", "Suite", "SuiteDefaults", "SuiteError", "check_content", "load_suite"]

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDefaults:
    """How a suite is asked when the command does not say otherwise.

    Args:
        max_tokens: for prompts that do not say their own.
        temperature: 0.0 is greedy.
        concurrency: the streams kept open at once; each value is a run of its own.
        requests_per_round: requests of each class in a round; a class with fewer prompts asks them again in order,
            None asks each prompt once.
        prompt_tokens: what the prompts were sized to, in tokens of llmperf's tokenizer; None where they were not.
        ignore_eos: False: an answer ends where the model ends it. Text forced past its end biases acceptance.
    """

    max_tokens: int
    temperature: float = 0.0
    concurrency: tuple[int, ...] = (1, 4)
    requests_per_round: int | None = None
    prompt_tokens: int | None = None
    ignore_eos: bool = False


# the sample's own arguments: aws-neuron-eks-samples speculative_decoding_trn2_vllm/qwen-llmperf-pod.yaml, BENCH_ARGS
POST = SuiteDefaults(max_tokens=600, concurrency=(4,), requests_per_round=8, prompt_tokens=64)
REAL = SuiteDefaults(max_tokens=512)
BUILT_IN = {"post": POST, "real": REAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Prompts with a name.

    Args:
        name: `post`, `real`, or a user's file name with its ending.
        prompts: in the file's order.
        sha256: of the canonical content (`content_hash`).
        defaults: how it is asked.
        notes: sentences that belong beside its figures, such as a case that was left out.
    """

    name: str
    prompts: tuple[Prompt, ...]
    sha256: str
    defaults: SuiteDefaults
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, each once, in the order in which they first appear."""
        return tuple(dict.fromkeys(prompt.class_ for prompt in self.prompts))

    def class_prompts(self, name: str) -> tuple[Prompt, ...]:
        """Return the prompts of one class, in order."""
        return tuple(prompt for prompt in self.prompts if prompt.class_ == name)

    def select_classes(self, classes: Collection[str]) -> Suite:
        """Return the suite with these of its classes alone, and the hash of what is left."""
        prompts = tuple(prompt for prompt in self.prompts if prompt.class_ in classes)
        return replace(self, prompts=prompts, sha256=content_hash(prompts))


def load_suite(name_or_path: str | Path, *, llmperf_source: Path | None = None) -> Suite:
    """Return a suite.

    Args:
        name_or_path: `post`, `real`, or a JSONL file (docs/suites.md).
        llmperf_source: a checkout of ray-project/llmperf, whose own text is the eighth case of `post`; no other suite
            reads it.

    Raises:
        SuiteError: there is no such suite, or its file cannot be used; with file and line.
    """
    name = str(name_or_path)
    if name == "post":
        llmperf_prompts = read_llmperf_prompts(llmperf_source) if llmperf_source is not None else ()
        prompts = (*read_prompts(DATA / "post.jsonl"), *llmperf_prompts)
        return _build_suite("post", prompts, POST, notes=() if llmperf_prompts else (OMISSION_NOTE,))
    if name in BUILT_IN:
        return _build_suite(name, read_prompts(DATA / f"{name}.jsonl"), BUILT_IN[name])
    path = Path(name_or_path)
    if path.suffix != ".jsonl" and not path.exists():
        raise SuiteError([_build_name_fault(name)])
    return _build_suite(path.name, read_prompts(path), REAL)


def narrow_suites(suites: Sequence[Suite], classes: Sequence[str]) -> tuple[Suite, ...]:
    """Return the suites with these classes alone; a suite that has none of them is left out.

    Raises:
        SuiteError: no suite has such a class.
    """
    class_names = {name for suite in suites for name in suite.classes}
    missing = [name for name in classes if name not in class_names]
    if missing:
        raise SuiteError([_build_class_fault(name, sorted(class_names)) for name in missing])
    return tuple(suite.select_classes(classes) for suite in suites if set(classes) & set(suite.classes))


def content_hash(prompts: Sequence[Prompt]) -> str:
    """Return the SHA-256 of what is asked: one canonical JSON line a prompt, UTF-8, sorted keys, no spaces.

    Two files that differ in key order, spaces or escapes alone have one hash; two in another order do not, since a
    run that takes the first prompts of a class would ask others.
    """
    digest = hashlib.sha256()
    for prompt in prompts:
        line = {
            "id": prompt.id, "class": prompt.class_, "messages": prompt.as_messages(),
            "max_tokens": prompt.max_tokens, "check": sorted(prompt.check),
        }  # fmt: skip
        digest.update(json.dumps(line, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _build_suite(name: str, prompts: Sequence[Prompt], defaults: SuiteDefaults, notes: tuple[str, ...] = ()) -> Suite:
    return Suite(name=name, prompts=tuple(prompts), sha256=content_hash(prompts), defaults=defaults, notes=notes)


def _build_class_fault(name: str, class_names: Sequence[str]) -> SuiteFault:
    suggestions = difflib.get_close_matches(name, class_names, n=1)
    return SuiteFault(
        where="--classes", problem=f"no suite that is asked has a class {name!r}", allowed=", ".join(class_names),
        change=f"did you mean {suggestions[0]!r}?" if suggestions else "name one of these",
    )  # fmt: skip


def _build_name_fault(name: str) -> SuiteFault:
    suggestions = difflib.get_close_matches(name, BUILT_IN, n=1)
    change = f"did you mean {suggestions[0]!r}?" if suggestions else "name one of these, or the file by its path"
    return SuiteFault(
        where=name, problem="no suite and no file has this name",
        allowed=f"{', '.join(BUILT_IN)}, or a file FILE.jsonl", change=change,
    )  # fmt: skip
