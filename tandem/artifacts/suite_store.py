"""Files of prompts in the bucket: each under the name and the digest that an experiment states.

Invariant: a stored file never changes, and no bytes are used that have another digest. No fault
shows what a file holds.
"""

from __future__ import annotations

import hashlib

from tandem.artifacts.store import ObjectStore
from tandem.declarations.names import suite_key
from tandem.declarations.suite_file import SuiteFile
from tandem.declarations.suite_limit import require_suite_size
from tandem.errors import InputError
from tandem.shell_command import build_tandem_command


def store_suite(store: ObjectStore, name: str, content: bytes) -> tuple[str, str]:
    """Store a file of prompts; return its SHA-256 and key.

    Args:
        store: the bucket.
        name: of the file.
        content: of the file.

    Raises:
        ExternalError: S3 failed.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    key = suite_key(name, sha256)
    store.write_fixed(key, content)
    return sha256, key


def read_suite_bytes(store: ObjectStore, suite: SuiteFile) -> tuple[bytes, str]:
    """Return the stored bytes of a suite, and their SHA-256.

    Raises:
        InputError: the bucket lacks the file, it is too large, or it has another digest.
        ExternalError: S3 failed.
    """
    key = suite_key(suite.name, suite.sha256)
    where = store.url(key)
    verb = f"artifacts stage-suite {suite.file}"
    change = f"store it again: {build_tandem_command(verb, 'NAME', *suite.list_flags())}"
    head = store.head(key)
    if head is None:
        raise InputError("the bucket has no file of this digest", where=where, change=change)
    require_suite_size(head.size, where)
    content = store.read(key)
    body = content.body if content else b""
    sha256 = hashlib.sha256(body).hexdigest()
    if sha256 != suite.sha256:
        problem = f"its SHA-256 is {sha256}, and the experiment states {suite.sha256}"
        raise InputError(problem, where=where, change=change)
    return body, sha256
