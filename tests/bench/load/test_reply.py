"""What the headers of a reply say."""

from __future__ import annotations

import email.utils
import time

import pytest

from tandem.bench.load.reply import ServerReply

DATE = "Fri, 27 Nov 2026 08:30:00 GMT"


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("2", 2.0),
        ("1.5", 1.5),
        ("Fri, 27 Nov 2026 08:30:07 GMT", 7.0),
        ("Friday, 27-Nov-26 08:30:07 GMT", 7.0),
        ("Fri Nov 27 08:30:07 2026", 7.0),
        ("Fri, 27 Nov 2026 08:29:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_a_fraction_or_a_date(value, wait_s):
    reply = ServerReply(0, headers={"Retry-After": value, "Date": DATE})
    assert reply.retry_after_s == wait_s


def test_a_date_without_the_answers_own_counts_from_its_headers():
    retry_date = email.utils.formatdate(int(time.time()) + 30, usegmt=True)
    reply = ServerReply(0, headers_ns=time.monotonic_ns(), headers={"Retry-After": retry_date})

    assert reply.retry_after_s == pytest.approx(30, abs=1)
