"""A suite: the prompts of a measurement, their source, and a hash that identifies it.

Invariant: the hash covers the prompts and their checks, in order, but not the spelling of a file,
and nothing outside the file. Loading never uses the network. The loader reads every line of a file
before it refuses the file, so one error lists all faults; valid prompts go to a server unchanged.

The eighth case of the post's sample is llmperf's own text, read from its checkout and never stored
here. llmperf (src/llmperf/utils.py, `randomly_sample_sonnet_lines_prompt`, commit f1d6bed) writes
an instruction to stream random lines for a number of tokens, and to send no end token, and then
lines of its text in a random order, until the prompt has the requested number of tokens of its own
tokenizer. `WRAPPING` does the same in other words, with 28 of those tokens instead of 27. One
difference: `WRAPPING` uses the lines in the file's order, so every arm and every round gets the
same prompt.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path

import msgspec

from tandem.bench.suites.file_options import NO_OPTIONS, FileOptions
from tandem.bench.suites.prompt import Prompt
from tandem.bench.suites.suite_file import read_prompts
from tandem.errors import InputError, convert_os_errors

DATA = Path(__file__).parent / "data"
WRAPPING = (
    "Keep sending lines of this text, picked at random, 600 tokens in all. Never end your answer"
    " early:\n\n"
)
LLMPERF_TEXT = Path("src/llmperf/sonnet.txt")
# of the text at commit f1d6bed
LLMPERF_SHA256 = "a4fef83b31e3769bc1c8e9b795a5e442929ea101c54d4e00c93516179f9ad2e0"
# 64 tokens of llmperf's tokenizer, counted once on the known text, so loading a suite needs no
# tokenizer
BARE_CHARACTERS = 210
WRAPPED_CHARACTERS = 121
OMISSION_NOTE = (
    "the sample's eighth case, llmperf's own text, is left out: it is read from a checkout of"
    " ray-project/llmperf, --llmperf-source DIR"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDefaults:
    """Defaults of a suite, unless the command overrides them; the model may end an answer earlier.

    Args:
        max_tokens: for prompts without their own.
        concurrency: number of simultaneous streams; each value is a separate load.
        requests_per_round: requests of each class in a round; a class with fewer prompts sends them
            again in order; None sends each prompt once.
    """

    max_tokens: int
    concurrency: tuple[int, ...] = (1, 4)
    requests_per_round: int | None = None


# the sample's own arguments: aws-neuron-eks-samples
# speculative_decoding_trn2_vllm/qwen-llmperf-pod.yaml, BENCH_ARGS; its prompts have 64 tokens of
# llmperf's tokenizer
POST = SuiteDefaults(max_tokens=600, concurrency=(4,), requests_per_round=8)
REAL = SuiteDefaults(max_tokens=512)
BUILT_IN = {"post": POST, "real": REAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Prompts with a name.

    Args:
        name: `post`, `real`, `synthetic`, or a user's file name with its ending.
        prompts: in the file's order.
        sha256: of the canonical content (`content_hash`).
        defaults: of the suite.
        notes: sentences for a reader of its figures, e.g. about an omitted case.
        places: where each prompt stands in a user's file, by its id.
        file_sha256: of the bytes of the user's file; None for a suite that is none.
        options: what the user says of the file.
    """

    name: str
    prompts: tuple[Prompt, ...]
    sha256: str
    defaults: SuiteDefaults
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    file_sha256: str | None = None
    options: FileOptions = field(default=NO_OPTIONS, compare=False)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, each once, in the order of their first prompts."""
        return tuple(dict.fromkeys(prompt.class_ for prompt in self.prompts))

    @property
    def longest_answer(self) -> int:
        """The most tokens that any of its answers may have."""
        return max(prompt.max_tokens or self.defaults.max_tokens for prompt in self.prompts)

    def class_prompts(self, name: str) -> tuple[Prompt, ...]:
        """Return the prompts of one class, in order."""
        return tuple(prompt for prompt in self.prompts if prompt.class_ == name)

    def count_classes(self) -> dict[str, int]:
        """Return how many prompts each class has, in the order of `classes`."""
        return {name: len(self.class_prompts(name)) for name in self.classes}

    def encode_lines(self) -> bytes:
        """Return its prompts as a file in Tandem's form."""
        return b"".join(msgspec.json.encode(prompt) + b"\n" for prompt in self.prompts)

    def select_classes(self, classes: Collection[str]) -> Suite:
        """Return the suite with only these classes, and with the hash of the remaining prompts."""
        prompts = tuple(prompt for prompt in self.prompts if prompt.class_ in classes)
        return replace(self, prompts=prompts, sha256=content_hash(prompts))


def load_suite(
    name_or_path: str | Path,
    *,
    llmperf_source: Path | None = None,
    options: FileOptions = NO_OPTIONS,
) -> Suite:
    """Return a suite.

    Args:
        name_or_path: `post`, `real`, or a file in one of the forms of docs/suites.md.
        llmperf_source: a checkout of ray-project/llmperf, whose own text is the eighth case of
            `post`; no other suite reads it.
        options: what the user says of a file; `post` and `real` do not ask for it.

    Raises:
        InputError: there is no such suite, or its file is invalid; the error names the faulty
            lines.
    """
    name = str(name_or_path)
    path = Path(name_or_path)
    if name in BUILT_IN:
        suite = _load_built_in(name)
        if name == "post" and llmperf_source:
            return _add_llmperf_prompts(suite, llmperf_source)
        return suite
    if not name or (path.suffix != ".jsonl" and not path.exists()):
        change = _suggest_name(name, BUILT_IN, "name one of these, or the file by its path")
        if name == "-":
            change = "name standard input by its path: /dev/stdin"
        problem = f"no suite and no file has this name; allowed: {', '.join(BUILT_IN)}, or a file"
        raise InputError(problem, where=name, change=change)
    return read_suite(_read_file(path), name=path.name, where=name, options=options)


def read_suite(
    content: bytes,
    *,
    name: str,
    where: str,
    options: FileOptions = NO_OPTIONS,
    sha256: str = "",
) -> Suite:
    """Return the suite of a user's file, or of bytes that were such a file.

    Args:
        content: of the file.
        name: of the suite.
        where: the file's path, for an error.
        options: what the user says of it.
        sha256: of the content, if the caller knows it; empty computes it.

    Raises:
        InputError: the content is in no known form, rows are faulty, or the sample is too large.
    """
    file = read_prompts(content, where, options)
    prompts = options.draw_sample(tuple(file.prompts.values()), where)
    notes = tuple(f"{name}: {note}" for note in file.list_notes())
    return Suite(
        name=name,
        prompts=prompts,
        sha256=content_hash(prompts),
        defaults=REAL,
        notes=notes,
        places=file.places,
        file_sha256=sha256 or hashlib.sha256(content).hexdigest(),
        options=options,
    )


@cache  # a runner asks for them at each look, and they are the package's own
def _load_built_in(name: str) -> Suite:
    """Return a suite of this package, without the text of llmperf."""
    path = DATA / f"{name}.jsonl"
    prompts = tuple(read_prompts(path.read_bytes(), str(path), NO_OPTIONS).prompts.values())
    notes = (OMISSION_NOTE,) if name == "post" else ()
    return Suite(
        name=name,
        prompts=prompts,
        sha256=content_hash(prompts),
        defaults=BUILT_IN[name],
        notes=notes,
    )


def _add_llmperf_prompts(suite: Suite, source: Path) -> Suite:
    """Return the suite post with its eighth case, which a checkout of llmperf has."""
    prompts = suite.prompts + _read_llmperf_prompts(source)
    return replace(suite, prompts=prompts, sha256=content_hash(prompts), notes=())


def narrow_suites(suites: Sequence[Suite], classes: Sequence[str]) -> tuple[Suite, ...]:
    """Return the suites with only these classes, without suites that have none of them.

    Raises:
        InputError: no suite has such a class.
    """
    names = sorted(set(chain.from_iterable(suite.classes for suite in suites)))
    for name in classes:
        if name not in names:
            problem = f"no selected suite has a class {name!r}; allowed: {', '.join(names)}"
            raise InputError(
                problem, where="--classes", change=_suggest_name(name, names, "name one of these")
            )
    return tuple(
        suite.select_classes(classes) for suite in suites if set(classes) & set(suite.classes)
    )


def content_hash(prompts: Sequence[Prompt]) -> str:
    """Return the prompts' SHA-256: one canonical JSON line each, UTF-8, sorted keys, no spaces.

    Two files that differ only in key order, spaces or escapes have the same hash. Another order of
    prompts changes the hash, because a run with the first prompts of a class would send different
    ones.
    """
    digest = hashlib.sha256()
    for prompt in prompts:
        identity = {"id": prompt.id, "class": prompt.class_, "messages": prompt.as_messages()}
        line = identity | {"max_tokens": prompt.max_tokens, "check": sorted(prompt.check)}
        digest.update(
            json.dumps(line, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
            + b"\n"
        )
    return digest.hexdigest()


def _read_llmperf_prompts(source: Path) -> tuple[Prompt, Prompt]:
    """Return llmperf's own text, bare and wrapped, with the size of llmperf's prompts.

    Raises:
        InputError: the checkout lacks the text, or its text differs from the text of the size
            count.
    """
    path = source / LLMPERF_TEXT
    change = "name a checkout of ray-project/llmperf at commit f1d6bed by --llmperf-source"
    with convert_os_errors("it cannot be read", path, change):
        content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != LLMPERF_SHA256:
        change = (
            "run `git checkout -- src/llmperf/sonnet.txt` there: the post's own script"
            " overwrites it"
        )
        raise InputError(
            f"SHA-256 is {digest} and not {LLMPERF_SHA256}", where=str(path), change=change
        )
    text = content.decode()
    bare = Prompt(
        id="sample-verse",
        class_="sample",
        prompt=text[:BARE_CHARACTERS],
        max_tokens=POST.max_tokens,
        check=frozenset(["to-limit"]),
    )
    wrapped = msgspec.structs.replace(
        bare,
        id="sample-verse-wrapped",
        class_="sample-wrapped",
        prompt=WRAPPING + text[:WRAPPED_CHARACTERS],
        check=frozenset(["to-limit", "repeats"]),
    )
    return bare, wrapped


def _suggest_name(name: str, names: Collection[str], otherwise: str) -> str:
    """Return whether the user may have meant the nearest of `names`, else `otherwise`."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def _read_file(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        InputError: it cannot be read.
    """
    change = "correct the path or its rights: a suite is a file of prompts (docs/suites.md)"
    with convert_os_errors("it cannot be read", path, change):
        return path.read_bytes()
