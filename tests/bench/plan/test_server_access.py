"""What a server is sent in secret: when two addresses are one, and what is hidden."""

from __future__ import annotations

import pytest

from tandem.bench.plan.server_access import ServerAccess, is_secret_header, share_origin


@pytest.mark.parametrize(
    ("urls", "is_shared"),
    [
        (("http://h:8000", "http://H:8000/v1"), True),
        (("http://h", "http://h:80/team"), True),
        (("https://h", "https://h:443"), True),
        (("http://h", "https://h"), False),
        (("http://h:1", "http://h:2"), False),
        (("http://a.h", "http://h"), False),
        (("http://h:99999", "http://other:99999"), False),
    ],
)
def test_an_origin_is_scheme_host_and_port(urls, is_shared):
    assert share_origin(urls) is is_shared


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("api-key", True),
        ("Proxy-Authorization", True),
        ("Cookie", True),
        ("accept-language", False),
    ],
)
def test_a_header_tells_by_its_name_that_it_is_secret(name, is_secret):
    assert is_secret_header(name) is is_secret


def test_long_secrets_are_hidden_and_short_ones_are_words():
    access = ServerAccess(api_key="key-0123456", headers={"a": "one", "b": "value-of-b"})
    content = b"one key-0123456 and value-of-b"
    assert access.mask_values(content) == b"one [hidden] and [hidden]"


@pytest.mark.parametrize(
    "said",
    [
        rb'{"message": "bad key sk-a/b+c\"d0123"}',
        rb'{"message": "bad key sk-a\/b\u002Bc\u0022d0123"}',
    ],
)
def test_a_key_is_hidden_in_json_that_escapes_its_characters(said):
    access = ServerAccess(api_key='sk-a/b+c"d0123')
    assert access.mask_values(said) == b'{"message": "bad key [hidden]"}'


def test_the_key_in_a_header_is_hidden_without_its_scheme_too():
    access = ServerAccess(headers={"Authorization": "Bearer sk-0123456789"})
    content = b"Bearer sk-0123456789, sk-0123456789"
    assert access.mask_values(content) == b"[hidden], [hidden]"
