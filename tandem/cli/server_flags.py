"""Flags that say what each server of a run is sent of its own: keys, headers, fields.

Invariant: no refusal and no manifest has a key or a header's value. What stands in place of a
variable's name may be a key, so it is shown only if it looks like the name of a variable.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tandem.bench.plan.run_options import NAME_PATTERN, NAME_RULE
from tandem.bench.plan.server_access import (
    ServerAccess,
    check_api_key,
    check_extra_body,
    check_headers,
    check_left_out,
    share_origin,
)
from tandem.bench.plan.server_options import MAX_DRAFTED_TOKENS
from tandem.errors import InputError
from tandem.shell_command import quote_command

if TYPE_CHECKING:
    from tandem.bench.records.manifest import ManifestArm

VARIABLE_PREFIX = "env:"
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# small letters, long words, and words of mixed letters and digits are more likely to be a key
USUAL_WORD = re.compile(r"[A-Z]{0,15}[0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class ServerWord:
    """A flag's value for one server, or for all.

    Args:
        arm: the server's NAME; None for all.
        value: as the flag reads it.
    """

    arm: str | None
    value: Any


@dataclass(frozen=True, slots=True)
class HeaderWord:
    """A header; its value is here, or in a variable of the environment.

    Args:
        name: of the header.
        text: the value, or the name of its variable.
        is_variable: which of them.
    """

    name: str
    text: str
    is_variable: bool


def parse_key_variable(text: str) -> ServerWord:
    """Read `[NAME=]VAR`; the refusal does not show the text, which may be a key."""
    arm, _, variable = text.rpartition("=")
    if not VARIABLE.fullmatch(variable) or (arm and not NAME_PATTERN.fullmatch(arm)):
        raise ValueError(
            "not the name of a variable, and not shown because it may be a key;"
            " allowed: [NAME=]VARIABLE, of an environment variable that holds the key"
        )
    return ServerWord(arm or None, variable)


def parse_header(text: str) -> ServerWord:
    """Read `[NAME=]K:V`; NAME counts before the first colon. No refusal shows V."""
    head, colon, value = text.partition(":")
    arm, _, name = head.rpartition("=")
    if not colon:
        raise ValueError("no colon; allowed: [NAME=]HEADER:VALUE or [NAME=]HEADER:env:VARIABLE")
    if arm and not NAME_PATTERN.fullmatch(arm):
        raise ValueError(f"the NAME before '='; allowed: {NAME_RULE}")
    value = value.strip()
    is_variable = value.startswith(VARIABLE_PREFIX)
    variable = value.removeprefix(VARIABLE_PREFIX)
    if is_variable and not VARIABLE.fullmatch(variable):
        raise ValueError("env: is followed by the name of a variable")
    check_headers({name.strip(): value})
    return ServerWord(arm or None, HeaderWord(name.strip(), variable, is_variable))


def hide_header_value(text: str) -> str:
    """Return a header as the manifest keeps it: its name, and its variable if it has one."""
    head, _, value = text.partition(":")
    return text if value.strip().startswith(VARIABLE_PREFIX) else head


def parse_extra_body(text: str) -> ServerWord:
    """Read `[NAME=]JSON`, an object of fields."""
    has_arm = "=" in text.partition("{")[0]
    arm, _, document = text.partition("=") if has_arm else ("", "", text)
    if arm and not NAME_PATTERN.fullmatch(arm):
        raise ValueError(f"name {arm!r}; allowed: {NAME_RULE}")
    try:
        body = json.loads(document)
    except json.JSONDecodeError as error:
        raise ValueError(f"{document!r} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ValueError(f"{document!r}; allowed: a JSON object")  # noqa: TRY004 - of a user's text
    check_extra_body(body)
    return ServerWord(arm or None, body)


def parse_left_out(text: str) -> ServerWord:
    """Read `[NAME=]FIELD`."""
    arm, _, name = text.rpartition("=")
    check_left_out([name])
    return ServerWord(arm or None, name)


def parse_speculation(text: str) -> ServerWord:
    """Read `NAME[=K]`."""
    arm, _, count = text.partition("=")
    is_count = count.isascii() and count.isdecimal() and 1 <= int(count) <= MAX_DRAFTED_TOKENS
    if not NAME_PATTERN.fullmatch(arm) or not (is_count or "=" not in text):
        allowed = f"NAME, or NAME=K with K from 1 to {MAX_DRAFTED_TOKENS}"
        raise ValueError(f"{text!r}; allowed: {allowed}")
    return ServerWord(arm, int(count) if count else None)


def assign_words(
    flag: str, words: Sequence[ServerWord], names: Sequence[str]
) -> dict[str, list[Any]]:
    """Return each server's values: those for all, then its own.

    Raises:
        InputError: a NAME is none of the servers; it is not shown, as it may be a part of a key.
    """
    common = [word.value for word in words if word.arm is None]
    values: dict[str, list[Any]] = {name: list(common) for name in names}
    for word in words:
        if word.arm is None:
            continue
        if word.arm not in values:
            problem = f"{flag} names no arm of this run; allowed: {', '.join(names)}"
            raise InputError(problem, change="name an arm before the '='")
        values[word.arm].append(word.value)
    return values


def merge_bodies(bodies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of all; of two of one name the last counts."""
    merged: dict[str, Any] = {}
    for body in bodies:
        merged |= body
    return merged


def read_speculations(
    words: Sequence[ServerWord], arms: Sequence[ManifestArm]
) -> dict[str, int | None]:
    """Return the drafted tokens of the servers that are said to speculate.

    Raises:
        InputError: a NAME is no arm's, or of an arm of which the experiment says it.
    """
    for arm in arms:
        if arm.speculation is not None and any(word.arm == arm.name for word in words):
            problem = f"--speculates {arm.name}: the experiment says how it speculates"
            raise InputError(problem, change="drop --speculates")
    values = assign_words("--speculates", words, [arm.name for arm in arms])
    return {name: counts[-1] for name, counts in values.items() if counts}


def read_access(
    urls: Mapping[str, str], keys: Sequence[ServerWord], headers: Sequence[ServerWord]
) -> dict[str, ServerAccess]:
    """Return the key and the headers of each server, read from the environment.

    Args:
        urls: of the servers, by name.
        keys: of --api-key-env.
        headers: of --header.

    Raises:
        InputError: a variable is not set, or a key that names no server would go to several
            addresses.
    """
    names = list(urls)
    variables = assign_words("--api-key-env", keys, names)
    _require_one_address(urls, keys)
    _require_one_key(keys)
    header_words = assign_words("--header", headers, names)
    access = {}
    for name in names:
        key = _read_api_key(variables[name])
        access[name] = ServerAccess(api_key=key, headers=_read_headers(header_words[name]))
        if access[name].has_two_keys:
            problem = f"--api-key-env and --header Authorization are both given for {name}"
            raise InputError(problem, change="give one of them")
    return access


def _require_one_key(words: Sequence[ServerWord]) -> None:
    """Refuse two keys of one server, or two for all.

    Raises:
        InputError: names the server.
    """
    owners = [word.arm for word in words]
    for owner in owners:
        if owners.count(owner) > 1:
            whose = f"of {owner}" if owner else "for all arms"
            raise InputError(f"two --api-key-env {whose}", change="drop one of them")


def _require_one_address(urls: Mapping[str, str], words: Sequence[ServerWord]) -> None:
    """Refuse a key for all servers where they differ in scheme, host or port.

    Raises:
        InputError: names the servers.
    """
    if all(word.arm is not None for word in words) or share_origin(urls.values()):
        return
    problem = "--api-key-env without NAME= would send one key to several addresses"
    example = next(iter(urls))
    servers = ", ".join(f"{name}={url}" for name, url in urls.items())
    change = f"name the arm that is to get it, such as --api-key-env {example}=VARIABLE"
    raise InputError(f"{problem}: {servers}", change=change)


def _read_api_key(variables: Sequence[str]) -> str | None:
    """Return a server's key; None without a variable; the server's own comes last.

    Raises:
        InputError: the variable is not set, or holds no key.
    """
    if not variables:
        return None
    variable = variables[-1]
    key = _read_variable("--api-key-env", variable)
    try:
        check_api_key(key)
    except ValueError as error:
        name = f" {variable}" if _is_usual(variable) else ""
        problem = f"the variable{name} holds no key; allowed: {error}"
        raise InputError(problem, where="--api-key-env", change="export the key alone") from error
    return key


def _read_headers(words: Sequence[HeaderWord]) -> dict[str, str]:
    """Return a server's headers by name; of two of one name the last counts.

    Raises:
        InputError: a variable is not set, or its value is no header's.
    """
    headers: dict[str, tuple[str, str]] = {}
    for word in words:
        value = _read_variable("--header", word.text) if word.is_variable else word.text
        headers[word.name.casefold()] = (word.name, value)
    named = dict(headers.values())
    try:
        check_headers(named)
    except ValueError as error:
        raise InputError(str(error), where="--header", change="export another value") from error
    return named


def _read_variable(flag: str, variable: str) -> str:
    """Return what a variable holds, without the space around it.

    Raises:
        InputError: it is not set, or is empty.
    """
    value = os.environ.get(variable, "").strip()
    if value:
        return value
    if not _is_usual(variable):
        problem = "the variable is not set, and is not shown because it may be a key"
        change = f"export the key, and give {flag} the name of its variable"
        raise InputError(problem, where=flag, change=change)
    change = quote_command("export", f"{variable}=KEY")
    raise InputError(f"the variable {variable} is not set", where=flag, change=change)


def _is_usual(variable: str) -> bool:
    """Return whether a text is a variable's name, and no key that looks like one."""
    return all(map(USUAL_WORD.fullmatch, variable.split("_")))
