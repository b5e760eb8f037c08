"""What each server is sent of its own: an API key, headers, fields of the request's body.

Invariant: no API key and no header's value is in any text, be it a repr, a refusal or a file. A
key that names no server is sent to one address only. Standard library only, as `run_options`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
LEAST_MASKED = 8  # a shorter secret is also a part of usual words
MASK = b"[hidden]"
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 5.6.2, a token
HEADER_VALUE = re.compile(r"[^\x00-\x1f\x7f]*[^\x00-\x20\x7f]")
API_KEY = re.compile(r"[\x21-\x7e]+")
_SECRET_WORDS = re.compile("(?i)auth|key|token|secret|cookie|credential|password|signature")
_SEPARATORS = re.compile("[ ;,=]+")
OWNED_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
    }
)
"""Headers by which a request is measured and found again, in lower case."""

IGNORE_EOS = "ignore_eos"
OWNED_FIELDS: Mapping[str, str] = {
    "model": "name the model with --model",
    "messages": "give prompts with --suite",
    "prompt": "give prompts with --suite",
    "max_tokens": "limit answers with --max-tokens",
    "max_completion_tokens": "limit answers with --max-tokens",
    "seed": "set it with --seed",
    "temperature": "set it with --temperature",
    "stream": "Tandem always streams; drop it from --extra-body",
    "stream_options": "Tandem asks for usage itself; to send none, --leave-out stream_options",
    "n": "Tandem reads one answer a request; send a prompt again with --repeats",
    "logprobs": "ask for them with --record logprobs",
    "top_logprobs": "ask for them with --record logprobs",
    "return_token_ids": "ask for them with --record token-ids",
    "min_tokens": "make answers equally long with --ignore-eos",
    IGNORE_EOS: "make answers equally long with --ignore-eos",
}
"""Fields that the bench sets itself, with the flag that does."""

OPTIONAL_FIELDS = (
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "seed",
    "stream_options",
    "continuous_usage_stats",
    "chat_template_kwargs",
    "return_token_ids",
    "logprobs",
    "top_logprobs",
)
"""Fields of a request that may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """The secrets that one server is sent; never recorded.

    >>> ServerAccess(api_key="k-123", headers={"api-version": "1"})
    ServerAccess()

    Args:
        api_key: sent as a bearer token; None for none.
        headers: of every request.
    """

    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def list_headers(self) -> dict[str, str]:
        """Return all headers of a request, the key's among them."""
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {**key, **self.headers}

    @property
    def has_two_keys(self) -> bool:
        """Whether a header would be sent in the key's place."""
        names = {name.casefold() for name in self.headers}
        return self.api_key is not None and "authorization" in names

    def mask_values(self, content: bytes) -> bytes:
        """Return what a server said without the secrets that it repeats.

        Values of fewer than `LEAST_MASKED` characters stay: they are parts of usual words.
        """
        for secret in self._list_secrets():
            content = content.replace(secret.encode(), MASK)
            if b"\\" in content:
                content = _compile_escaped(secret).sub(MASK, content)
        return content

    def mask_text(self, text: str) -> str:
        """Return a text without the secrets in it, as `mask_values` does."""
        content = self.mask_values(text.encode(errors="surrogatepass"))
        return content.decode(errors="surrogatepass")

    def _list_secrets(self) -> list[str]:
        """Return what to hide, the longest first: of `Bearer KEY` servers repeat KEY alone."""
        secrets = {self.api_key or "", *self.headers.values()}
        for name, value in self.headers.items():
            if is_secret_header(name):
                secrets.update(_SEPARATORS.split(value))
        return sorted(filter(_is_long, secrets), key=len, reverse=True)


def _is_long(secret: str) -> bool:
    return len(secret) >= LEAST_MASKED


@lru_cache(maxsize=64)
def _compile_escaped(secret: str) -> re.Pattern[bytes]:
    """Return what finds a secret in JSON: servers may escape any character, as `/` or `+`."""
    signs = (rb"(?:\\?%s|\\u(?i:%04x))" % (re.escape(sign.encode()), ord(sign)) for sign in secret)
    return re.compile(b"".join(signs))


NO_ACCESS = ServerAccess()


def read_origin(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:  # no port at all, such as 99999: nothing can be sent to it
        port = None
    return parts.scheme, parts.hostname or "", port or DEFAULT_PORTS.get(parts.scheme)


def share_origin(urls: Iterable[str]) -> bool:
    """Return whether addresses have one scheme, host and port."""
    return len(set(map(read_origin, urls))) < 2  # noqa: PLR2004 - two differ


def is_secret_header(name: str) -> bool:
    """Return whether a header by its name carries a secret."""
    return _SECRET_WORDS.search(name) is not None


def list_shared_headers(
    urls: Mapping[str, str], access: Mapping[str, ServerAccess]
) -> Iterator[str]:
    """Yield the headers that by name are secrets, and of one value for several addresses.

    Args:
        urls: of the servers, by name.
        access: of the servers.
    """
    servers: dict[tuple[str, str], list[str]] = {}
    for name, url in urls.items():
        for header, value in access.get(name, NO_ACCESS).headers.items():
            servers.setdefault((header.casefold(), value), []).append(url)
    for (header, _), addresses in servers.items():
        if is_secret_header(header) and not share_origin(addresses):
            yield header


def check_api_key(key: str) -> None:
    """Refuse what no header can carry.

    Raises:
        ValueError: it has a space, a control character or none of ASCII.
    """
    if not isinstance(key, str) or not API_KEY.fullmatch(key):
        raise ValueError("a key of visible ASCII characters, without spaces and without 'Bearer'")


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that are none, and those that the bench sets itself.

    Raises:
        ValueError: says what is allowed, without any value.
    """
    if not isinstance(headers, Mapping):
        raise ValueError("a mapping of names to values")  # noqa: TRY004 - of a user's value
    for name, value in headers.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise ValueError("a header's name is letters, digits and '-'")
        if not isinstance(value, str):
            raise ValueError(f"the value of {name} is a text")  # noqa: TRY004 - of a user's value
        if not HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the value of {name} is empty or has a control character")
        if name.casefold() in OWNED_HEADERS:
            raise ValueError(f"{name} is set by Tandem itself")


def check_extra_body(body: Mapping[str, Any]) -> None:
    """Refuse fields that the bench sets itself, and what is no JSON.

    Raises:
        ValueError: names the field, and the flag that sets it.
    """
    if not isinstance(body, Mapping):
        raise ValueError("a mapping of fields to values")  # noqa: TRY004 - of a user's value
    for name in body:
        if not isinstance(name, str):
            raise ValueError("the name of a field is a text")  # noqa: TRY004 - of a user's value
        if name in OWNED_FIELDS:
            raise ValueError(f"{name!r} is set by Tandem: {OWNED_FIELDS[name]}")
    template = body.get("chat_template_kwargs", {})
    if not isinstance(template, Mapping):
        raise ValueError("chat_template_kwargs is a JSON object")  # noqa: TRY004 - of a user's text
    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"not JSON: {error}") from error


def check_left_out(names: Collection[str]) -> None:
    """Refuse fields that no request can be without, or never has.

    Raises:
        ValueError: names what may be left out.
    """
    if isinstance(names, str):
        raise ValueError("a list of fields")  # noqa: TRY004 - of a user's value
    for name in names:
        if name not in OPTIONAL_FIELDS:
            raise ValueError(f"{name!r}; allowed: {', '.join(OPTIONAL_FIELDS)}")


def freeze_value(value: Any) -> Any:
    """Return a copy that nobody can change: mappings read-only, lists as tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: freeze_value(entry) for name, entry in value.items()})
    if isinstance(value, list | tuple):
        return tuple(map(freeze_value, value))
    return value


def thaw_value(value: Any) -> Any:
    """Return a copy of plain dicts and lists, as JSON and pickle take them."""
    if isinstance(value, Mapping):
        return {name: thaw_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return list(map(thaw_value, value))
    return value


def list_unlike_fields(bodies: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the fields of the body that servers are sent with unlike values."""
    names = dict.fromkeys(name for body in bodies.values() for name in body)
    for name in names:
        texts = {json.dumps(body.get(name), sort_keys=True) for body in bodies.values()}
        if len(texts) > 1:
            yield name
