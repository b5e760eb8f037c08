"""A suite: the prompts a measurement asks, where they come from, and a hash that says whether two are the same.

Invariant: the hash covers what is asked and how its answers are checked, in order; nothing of a file's spelling, and
nothing outside of it. Loading never reads the network.

The eighth case of the post's sample is llmperf's own text, read from its checkout and never stored here. llmperf
(src/llmperf/utils.py, `randomly_sample_sonnet_lines_prompt`, commit f1d6bed) puts an instruction to stream random lines
for so many tokens, and to send no end token, before lines of its text in a random order, until the whole has the asked
number of tokens of its own tokenizer. `WRAPPING` does the same in other words, in 28 of those tokens to its 27. One
thing differs: the lines are taken in the file's order, so that every arm and every round is asked the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tandem.bench.suites.content import check_content
from tandem.bench.suites.prompt import Hint, Prompt
from tandem.bench.suites.suite_file import SuiteError, SuiteFault, read_prompts, suggest_name

__all__ = ["Prompt", "Suite", "SuiteDefaults", "SuiteError", "check_content", "load_suite"]

DATA = Path(__file__).parent / "data"
WRAPPING = "Keep sending lines of this text, picked at random, 600 tokens in all. Never end your answer early:\n\n"
LLMPERF_TEXT = Path("src/llmperf/sonnet.txt")
LLMPERF_SHA256 = "a4fef83b31e3769bc1c8e9b795a5e442929ea101c54d4e00c93516179f9ad2e0"  # of the text at commit f1d6bed
# 64 tokens of llmperf's tokenizer, counted once on the known text: nothing here needs a tokenizer to load a suite
BARE_CHARACTERS, WRAPPED_CHARACTERS = 210, 121
OMISSION_NOTE = (
    "the sample's eighth case, llmperf's own text, is left out: it is read from a checkout of ray-project/llmperf, "
    "--llmperf-source DIR"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDefaults:
    """How a suite is asked when the command does not say otherwise.

    Args:
        max_tokens: for prompts that do not say their own.
        concurrency: the streams kept open at once; each value is a run of its own.
        requests_per_round: requests of each class in a round; a class with fewer prompts asks them again in order,
            None asks each prompt once.
        ignore_eos: False: an answer ends where the model ends it. Text forced past its end biases acceptance.
    """

    max_tokens: int
    concurrency: tuple[int, ...] = (1, 4)
    requests_per_round: int | None = None
    ignore_eos: bool = False


# the sample's own arguments: aws-neuron-eks-samples speculative_decoding_trn2_vllm/qwen-llmperf-pod.yaml, BENCH_ARGS;
# its prompts have 64 tokens of llmperf's tokenizer
POST = SuiteDefaults(max_tokens=600, concurrency=(4,), requests_per_round=8)
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
    name, path = str(name_or_path), Path(name_or_path)
    notes: tuple[str, ...] = ()
    if name in BUILT_IN:
        prompts = read_prompts(DATA / f"{name}.jsonl")
    elif path.suffix == ".jsonl" or path.exists():
        name, prompts = path.name, read_prompts(path)
    else:
        change = suggest_name(name, BUILT_IN, "name one of these, or the file by its path")
        allowed = f"{', '.join(BUILT_IN)}, or a file FILE.jsonl"
        problem = "no suite and no file has this name"
        raise SuiteError([SuiteFault(where=name, problem=problem, allowed=allowed, change=change)])
    if str(name_or_path) == "post":
        prompts += _read_llmperf_prompts(llmperf_source) if llmperf_source else ()
        notes = () if llmperf_source else (OMISSION_NOTE,)
    defaults = BUILT_IN.get(str(name_or_path), REAL)
    return Suite(name=name, prompts=prompts, sha256=content_hash(prompts), defaults=defaults, notes=notes)


def narrow_suites(suites: Sequence[Suite], classes: Sequence[str]) -> tuple[Suite, ...]:
    """Return the suites with these classes alone; a suite that has none of them is left out.

    Raises:
        SuiteError: no suite has such a class.
    """
    names = sorted({name for suite in suites for name in suite.classes})
    faults = [
        SuiteFault(
            where="--classes",
            problem=f"no suite that is asked has a class {name!r}",
            allowed=", ".join(names),
            change=suggest_name(name, names, "name one of these"),
        )
        for name in classes
        if name not in names
    ]
    if faults:
        raise SuiteError(faults)
    return tuple(suite.select_classes(classes) for suite in suites if set(classes) & set(suite.classes))


def content_hash(prompts: Sequence[Prompt]) -> str:
    """Return the SHA-256 of what is asked: one canonical JSON line a prompt, UTF-8, sorted keys, no spaces.

    Two files that differ in key order, spaces or escapes alone have one hash; two in another order do not, since a
    run that takes the first prompts of a class would ask others.
    """
    digest = hashlib.sha256()
    for prompt in prompts:
        identity = {"id": prompt.id, "class": prompt.class_, "messages": prompt.as_messages()}
        line = identity | {"max_tokens": prompt.max_tokens, "check": sorted(prompt.check)}
        digest.update(json.dumps(line, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _read_llmperf_prompts(source: Path) -> tuple[Prompt, Prompt]:
    """Return llmperf's own text, bare and wrapped, sized as llmperf would.

    Raises:
        SuiteError: the checkout does not hold the text, or holds another one than the sizes were counted on.
    """
    path = source / LLMPERF_TEXT
    try:
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        problem = "" if digest == LLMPERF_SHA256 else f"SHA-256 is {digest} and not {LLMPERF_SHA256}"
        change = "run `git checkout -- src/llmperf/sonnet.txt` there: the post's own script overwrites it"
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        change = "name the checkout's top folder by --llmperf-source, or leave the option out"
    if problem:
        allowed = "a checkout of ray-project/llmperf at commit f1d6bed"
        raise SuiteError([SuiteFault(where=str(path), problem=problem, allowed=allowed, change=change)])
    text, hints = content.decode(), frozenset[Hint](["to-limit"])
    wrapped_text = WRAPPING + text[:WRAPPED_CHARACTERS]
    bare = Prompt(
        id="sample-verse", class_="sample", prompt=text[:BARE_CHARACTERS], max_tokens=POST.max_tokens, check=hints
    )
    name = "sample-verse-wrapped"
    return bare, replace(bare, id=name, class_="sample-wrapped", prompt=wrapped_text, check=hints | {"repeats"})
