# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""Large objects where the endpoint keeps them on disk: read by ranges without reading the whole, held in no memory.

Plain MiniStack reads the whole file for every range of it, so that a download in ranges takes time with the square of
the object's size, and keeps every part of an upload in memory until the upload is complete.

Invariant: without a directory for objects nothing here is installed.
"""

from __future__ import annotations

import mmap
import tempfile
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from ministack.core.responses import StreamingResponse
from ministack.services import s3

NEEDS = {
    s3: (
        "DATA_DIR", "S3_PERSIST", "_get_object", "_multipart_uploads", "_object_disk_path", "_object_versions", "_qp",
        "_read_body", "_record_object_version", "_upload_part",
    ),
}  # fmt: skip

_PIECE = 1024 * 1024
_mapped: ContextVar[bool] = ContextVar("whether a body may be a mapping of its file", default=False)


def install(_handlers: dict) -> None:
    """Take the place of how bodies are read and parts are kept."""
    if not s3.S3_PERSIST:
        return
    Path(s3.DATA_DIR).mkdir(parents=True, exist_ok=True)
    _reads_by_range()
    _parts_on_disk()
    _versions_on_disk()


def _reads_by_range():
    get, read = s3._get_object, s3._read_body

    def body(bucket, key, record):
        path = s3._object_disk_path(bucket, key)
        held = record.get("body") is not None or not record["size"]
        if not _mapped.get() or held or path is None or not Path(path).exists():
            return read(bucket, key, record)
        with Path(path).open("rb") as file:
            return _mapping(file)

    def got(*arguments):
        token = _mapped.set(True)
        try:
            status, headers, said = get(*arguments)
        finally:
            _mapped.reset(token)
        if isinstance(said, mmap.mmap):
            said = StreamingResponse(partial(_stream, said))
        return status, headers, said

    s3._read_body = body
    s3._get_object = got


async def _stream(content, send, _receive):
    for start in range(0, len(content), _PIECE):
        more = start + _PIECE < len(content)
        await send({"type": "http.response.body", "body": content[start : start + _PIECE], "more_body": more})
    content.close()


def _parts_on_disk():
    upload = s3._upload_part

    def uploaded(bucket, key, body, query, headers):
        answer = upload(bucket, key, body, query, headers)
        if answer[0] == 200 and body:  # noqa: PLR2004 - HTTP
            part = s3._multipart_uploads[s3._qp(query, "uploadId")]["parts"][int(s3._qp(query, "partNumber"))]
            with tempfile.TemporaryFile(dir=s3.DATA_DIR) as file:
                file.write(body)
                file.flush()
                part["body"] = _mapping(file)
        return answer

    s3._upload_part = uploaded


def _versions_on_disk():
    """A version's record keeps no body: MiniStack finds it in its file, as after a restart."""
    record = s3._record_object_version

    def recorded(bucket, key, before, said, data):
        version = record(bucket, key, before, said, data)
        for entry in s3._object_versions.get((bucket, key), []):
            entry["data"] = None
        return version

    s3._record_object_version = recorded


def _mapping(file):
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
