# ruff: noqa: SLF001, ANN001, ANN002, ANN202 - MiniStack is untyped and has no public interface
"""Large objects on the endpoint's disk: reads ranges alone, and holds no object in memory.

Plain MiniStack reads the whole file for every range, so the time of a download in ranges grows with
the square of the object's size. It also keeps every part of an upload in memory until the upload is
complete.

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

_CHUNK_BYTES = 1024 * 1024
_allows_mapping: ContextVar[bool] = ContextVar(
    "whether a body may be a mapping of its file", default=False
)


def install(_handlers: dict) -> None:
    """Replace the functions that read bodies and keep parts."""
    if not s3.S3_PERSIST:
        return
    Path(s3.DATA_DIR).mkdir(parents=True, exist_ok=True)
    _install_range_reads()
    _install_disk_parts()
    _install_disk_versions()


def _install_range_reads():
    get = s3._get_object
    read = s3._read_body

    def read_mapped(bucket, key, record):
        path = s3._object_disk_path(bucket, key)
        is_in_memory = record.get("body") is not None or not record["size"]
        if not _allows_mapping.get() or is_in_memory or path is None or not Path(path).exists():
            return read(bucket, key, record)
        with Path(path).open("rb") as file:
            return _map_file(file)

    def read_streaming(*arguments):
        token = _allows_mapping.set(True)
        try:
            status, headers, content = get(*arguments)
        finally:
            _allows_mapping.reset(token)
        if isinstance(content, mmap.mmap):
            content = StreamingResponse(partial(_stream_content, content))
        return status, headers, content

    s3._read_body = read_mapped
    s3._get_object = read_streaming


async def _stream_content(content, send, _receive):
    for start in range(0, len(content), _CHUNK_BYTES):
        has_more = start + _CHUNK_BYTES < len(content)
        await send(
            {
                "type": "http.response.body",
                "body": content[start : start + _CHUNK_BYTES],
                "more_body": has_more,
            }
        )
    content.close()


def _install_disk_parts():
    upload = s3._upload_part

    def upload_to_disk(bucket, key, body, query, headers):
        answer = upload(bucket, key, body, query, headers)
        if answer[0] == 200 and body:  # noqa: PLR2004 - HTTP
            part = s3._multipart_uploads[s3._qp(query, "uploadId")]["parts"][
                int(s3._qp(query, "partNumber"))
            ]
            with tempfile.TemporaryFile(dir=s3.DATA_DIR) as file:
                file.write(body)
                file.flush()
                part["body"] = _map_file(file)
        return answer

    s3._upload_part = upload_to_disk


def _install_disk_versions():
    """Keep no body in a version's record: MiniStack finds it in its file, as after a restart."""
    record_version = s3._record_object_version

    def record_without_body(bucket, key, previous_record, object_record, data):
        version = record_version(bucket, key, previous_record, object_record, data)
        for entry in s3._object_versions.get((bucket, key), []):
            entry["data"] = None
        return version

    s3._record_object_version = record_without_body


def _map_file(file):
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
