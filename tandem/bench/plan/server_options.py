"""The options of a run that each server may have of its own, checked.

Invariant: options that exist are valid, and no refusal shows an API key or a header's value.
Standard library only, as `run_options`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tandem.bench.plan.server_access import (
    IGNORE_EOS,
    ServerAccess,
    check_api_key,
    check_extra_body,
    check_headers,
    check_left_out,
    share_origin,
    thaw_value,
)
from tandem.errors import InputError

MAX_DRAFTED_TOKENS = 1000


def refuse_option(name: str, value: object, allowed: str) -> InputError:
    """Return the refusal of an option's value."""
    return InputError(
        f"{value!r}; allowed: {allowed}", where=f"RunOptions.{name}", change="change it"
    )


def refuse_secret(name: str, allowed: str) -> InputError:
    """Return the refusal of a secret, which is not shown."""
    problem = f"its value is not shown; allowed: {allowed}"
    return InputError(problem, where=f"RunOptions.{name}", change="change it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The part of `RunOptions` that says what each server is sent; arguments as there."""

    servers: Mapping[str, str]
    api_key: str | Mapping[str, str] | None = field(default=None, repr=False)
    headers: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    leave_out: Sequence[str] | Mapping[str, Sequence[str]] = ()
    ignore_eos: bool = False
    speculates: Mapping[str, int | None] = field(default_factory=dict)

    def _check_server_options(self) -> None:
        self._check_api_keys()
        self._check_headers()
        self._check_bodies()
        self._check_left_out()
        self._check_speculations()

    def list_access(self) -> dict[str, ServerAccess]:
        """Return what each server is sent in secret."""
        keys = self._list_api_keys()
        headers = self._split_by_server(self.headers, {})
        return {
            name: ServerAccess(api_key=keys.get(name), headers=dict(headers[name]))
            for name in self.servers
        }

    def list_bodies(self) -> dict[str, dict[str, Any]]:
        """Return the further fields of each server's requests."""
        forced = {IGNORE_EOS: True} if self.ignore_eos else {}
        bodies = self._split_by_server(self.extra_body, {})
        return {name: thaw_value(bodies[name]) | forced for name in self.servers}

    def list_left_out(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the fields that each server is not sent."""
        names = self._split_by_server(self.leave_out, ())
        return {server: tuple(names[server]) for server in self.servers}

    def _list_api_keys(self) -> dict[str, str]:
        if isinstance(self.api_key, Mapping):
            return dict(self.api_key)
        return {} if self.api_key is None else dict.fromkeys(self.servers, self.api_key)

    def _split_by_server(self, value: Any, default: Any) -> dict[str, Any]:
        """Return each server's value of an option: one for all, unless its keys are servers."""
        if not self._is_by_server(value):
            return dict.fromkeys(self.servers, value)
        return {name: value.get(name, default) for name in self.servers}

    def _is_by_server(self, value: Any) -> bool:
        if not isinstance(value, Mapping) or not value or not value.keys() <= self.servers.keys():
            return False
        return not any(isinstance(entry, str) for entry in value.values())

    def _check_api_keys(self) -> None:
        keys = self._list_api_keys()
        if not keys.keys() <= self.servers.keys():
            raise refuse_secret("api_key", f"a server of {', '.join(self.servers)} to its key")
        try:
            for key in keys.values():
                check_api_key(key)
        except (ValueError, TypeError) as error:
            raise refuse_secret("api_key", str(error)) from error
        if isinstance(self.api_key, str) and not share_origin(self.servers.values()):
            example = f"{{{next(iter(self.servers))!r}: ...}}"
            allowed = f"one of each server that is to get it, as {example}, at several addresses"
            raise refuse_secret("api_key", allowed)

    def _check_headers(self) -> None:
        try:
            for headers in self._split_by_server(self.headers, {}).values():
                check_headers(headers)
        except ValueError as error:
            raise refuse_secret("headers", str(error)) from error
        if any(access.has_two_keys for access in self.list_access().values()):
            raise refuse_secret("headers", "no Authorization beside api_key, which is sent as one")

    def _check_bodies(self) -> None:
        try:
            for body in self._split_by_server(self.extra_body, {}).values():
                check_extra_body(thaw_value(body))
        except ValueError as error:
            raise refuse_option("extra_body", thaw_value(self.extra_body), str(error)) from error

    def _check_left_out(self) -> None:
        names_by_server = self._split_by_server(self.leave_out, ())
        try:
            for names in names_by_server.values():
                check_left_out(names)
        except (ValueError, TypeError) as error:
            raise refuse_option("leave_out", self.leave_out, str(error)) from error
        if self.ignore_eos and any("max_tokens" in names for names in names_by_server.values()):
            allowed = "no max_tokens beside ignore_eos: no answer would end"
            raise refuse_option("leave_out", self.leave_out, allowed)

    def _check_speculations(self) -> None:
        allowed = f"a server of {', '.join(self.servers)}, to 1 to {MAX_DRAFTED_TOKENS} or None"
        for name, count in self.speculates.items():
            is_count = type(count) is int and 1 <= count <= MAX_DRAFTED_TOKENS
            if name not in self.servers or not (is_count or count is None):
                raise refuse_option(f"speculates[{name!r}]", count, allowed)
