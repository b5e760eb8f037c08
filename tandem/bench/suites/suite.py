"""A suite: the prompts a measurement asks, where they come from, and a hash that says whether two are the same.

Invariant: the hash covers what is asked and how its answers are checked, in order; nothing of a file's spelling, and
nothing outside of it. Loading never reads the network. Every line of a file is read before anything is refused, so that
all its faults are told together; what passes is sent to a server as it is.

The eighth case of the post's sample is llmperf's own text, read from its checkout and never stored here. llmperf
(src/llmperf/utils.py, `randomly_sample_sonnet_lines_prompt`, commit f1d6bed) puts an instruction to stream random lines
for so many tokens, and to send no end token, before lines of its text in a random order, until the whole has the asked
number of tokens of its own tokenizer. `WRAPPING` does the same in other words, in 28 of those tokens to its 27. One
thing differs: the lines are taken in the file's order, so that every arm and every round is asked the same.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tandem.bench.fault import BenchError
from tandem.bench.suites.content import check_content
from tandem.bench.suites.prompt import HINTS, Hint, Prompt

__all__ = ["Prompt", "Suite", "SuiteDefaults", "SuiteError", "check_content", "load_suite"]

ROLES = ("system", "user", "assistant")
ID_PATTERN, CLASS_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", r"(?!all\Z)[a-z0-9][a-z0-9-]{0,31}"
MAX_TOKENS = 131_072
# key of a line: what its value must be
KEYS = {
    "id": "up to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
    "class": "up to 32 lower-case letters, digits and '-', and not 'all', the summary's row over all classes",
    "prompt": "a text in quotes that asks for something",
    "messages": 'a list of {"role", "content"}; a role is system (only as the first), user (as the last) or assistant',
    "system": "a text in quotes, beside 'prompt' only",
    "max_tokens": f"a whole number from 1 to {MAX_TOKENS}",
    "check": f"a list of {', '.join(HINTS)}",
}
KEY_ALIASES = {"text": "prompt", "question": "prompt", "input": "prompt", "category": "class", "hints": "check"}
MAX_BYTES = 64 * 2**20
MAX_VALUE_CHARACTERS = 60  # characters of a wrong value that a fault repeats
MAX_FAULTS = 20  # faults that are spelt out; a file of another format has one on every line
FILE_FORM, LINE_FORM = "a JSONL file: one JSON object a line, UTF-8", "one whole JSON object on one line"

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
class SuiteFault:
    """One fault.

    Args:
        where: the file as the user named it, with `:line` where a line is at fault.
        problem: what is wrong.
        allowed: what would be accepted.
        change: what to do about it.
    """

    where: str
    problem: str
    allowed: str
    change: str

    def __str__(self) -> str:
        """Render it as one line, for a log."""
        return f"{self.where}: {self.problem}; allowed: {self.allowed}; {self.change}"


class SuiteError(BenchError):
    """A suite cannot be used.

    Args:
        faults: every fault, at least one; `problem`, `where` and `change` are those of the first.
    """

    def __init__(self, faults: Sequence[SuiteFault]) -> None:
        first = faults[0]
        super().__init__(f"{first.problem}; allowed: {first.allowed}", where=first.where, change=first.change)
        self.faults = tuple(faults)
        more = f"{len(faults) - MAX_FAULTS} more faults of this file are not shown"
        self.args = ("\n".join([*map(str, faults[:MAX_FAULTS]), *[more] * (len(faults) > MAX_FAULTS)]),)


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
        prompts = _read_prompts(DATA / f"{name}.jsonl")
    elif path.suffix == ".jsonl" or path.exists():
        name, prompts = path.name, _read_prompts(path)
    else:
        change = _suggest_name(name, BUILT_IN, "name one of these, or the file by its path")
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
            change=_suggest_name(name, names, "name one of these"),
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


def _suggest_name(name: str, names: Collection[str], otherwise: str) -> str:
    """Return the question whether the nearest of `names` was meant, or `otherwise` where none is near."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else otherwise


def _read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of one file, in order.

    Raises:
        SuiteError: the file cannot be read, or some of its lines cannot be used; with every fault.
    """
    faults: list[SuiteFault] = []
    prompts: list[Prompt] = []
    line_numbers: dict[str, int] = {}
    content = _read_content(path).removeprefix(b"\xef\xbb\xbf")  # editors on Windows begin UTF-8 files so
    for number, raw in enumerate(content.split(b"\n"), start=1):
        if not raw.strip():
            continue
        line, problems = _read_line(raw)
        if "id" in line and (earlier_number := line_numbers.setdefault(repr(line["id"]), number)) != number:
            problem = f"id {line['id']!r} stands on line {earlier_number} already"
            problems.append((problem, "each id once", "rename one of the two"))
        where = f"{path}:{number}"
        faults += [SuiteFault(where=where, problem=text, allowed=rule, change=do) for text, rule, do in problems]
        if not problems:
            values = {"class_" if key == "class" else key: value for key, value in line.items()}
            messages = tuple({key: message[key] for key in ("role", "content")} for message in line.get("messages", ()))
            prompts.append(Prompt(**values | {"messages": messages or None, "check": frozenset(line.get("check", []))}))
    if not faults and not prompts:
        change = "write at least one line"
        faults = [SuiteFault(where=str(path), problem="the file has no prompt", allowed=FILE_FORM, change=change)]
    if faults:
        raise SuiteError(faults)
    return tuple(prompts)


def _read_content(path: Path) -> bytes:
    """Return the file's bytes.

    Raises:
        SuiteError: there is no such file, it is none, or it cannot be read.
    """
    try:
        if path.is_dir():
            problem, change = "this is a folder", "name a file in it"
        elif not path.exists():
            problem, change = "no such file", "create it, or correct the path"
        elif not path.is_file():
            problem, change = "this is a device or a pipe", "write it to a file first"
        elif (size := path.stat().st_size) > MAX_BYTES:
            problem, change = f"the file has {size} bytes, at most {MAX_BYTES} are read", "split the suite"
        else:
            return path.read_bytes()
    except OSError as error:
        problem, change = f"cannot be read: {error.strerror or error}", "correct its rights, or the path"
    raise SuiteError([SuiteFault(where=str(path), problem=problem, allowed=FILE_FORM, change=change)])


def _read_line(raw: bytes) -> tuple[dict[str, Any], list[tuple[str, str, str]]]:
    """Return the values of a line, and everything that is wrong with them: problem, what is allowed, what to change."""
    try:
        line = json.loads(raw.decode(), object_pairs_hook=_build_object)
        json.dumps(line, ensure_ascii=False).encode()  # half a surrogate pair has no spelling
    except (RecursionError, ValueError) as error:  # also of a number of thousands of digits
        return {}, [(f"not JSON in UTF-8: {error}", LINE_FORM, "correct the line, and save the file as UTF-8")]
    if not isinstance(line, dict):
        return {}, [(f"got {_format_value(line)}", LINE_FORM, "put the line's values under their keys")]
    problems, meant_keys = [], set[str]()
    for key, value in line.items():
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            meant_key = KEY_ALIASES.get(key, close[0] if close else "")
            change = f"did you mean {meant_key!r}?" if meant_key else "delete it"
            problems.append((f"unknown key {key!r}", ", ".join(KEYS), change))
            meant_keys.add(meant_key)
            continue
        for label, part in _find_wrong_parts(key, value):
            problems.append((f"{label} {_format_value(part)}", KEYS[key], "correct it"))
    keys = line.keys() | meant_keys
    problems += [(f"no {key!r}", KEYS[key], f"add {key!r}") for key in ("id", "class") if key not in keys]
    if len(keys & {"prompt", "messages"}) != 1:
        problem = "both 'prompt' and 'messages'" if "prompt" in keys else "neither 'prompt' nor 'messages'"
        problems.append((problem, "exactly one of them", "delete one" if "prompt" in keys else "add 'prompt'"))
    if {"system", "messages"} <= keys:
        problems.append(("both 'system' and 'messages'", KEYS["system"], "make it the first message"))
    return line, problems


def _find_wrong_parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each part of a value that is not what its key asks for, with the name of the part."""
    if key in {"id", "class"}:
        pattern = ID_PATTERN if key == "id" else CLASS_PATTERN
        is_right = isinstance(value, str) and bool(re.fullmatch(pattern, value))
    elif key == "max_tokens":
        is_right = type(value) is int and 1 <= value <= MAX_TOKENS
    elif key == "check":
        is_right = isinstance(value, list) and all(hint in HINTS for hint in value)
    elif key == "messages" and isinstance(value, list) and value:
        for index, message in enumerate(value):
            is_whole = isinstance(message, dict) and message.keys() == {"role", "content"} and message["role"] in ROLES
            is_misplaced = is_whole and index > 0 and message["role"] == "system"
            if not is_whole or is_misplaced or not _is_text(message["content"]):
                yield f"messages[{index}]", message
        is_right = not isinstance(value[-1], dict) or value[-1].get("role") == "user"
    else:
        is_right = key != "messages" and _is_text(value)
    if not is_right:
        yield key, value


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if duplicates := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
        raise ValueError(f"key {duplicates[0]!r} stands twice")
    return dict(pairs)


def _format_value(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}..."
