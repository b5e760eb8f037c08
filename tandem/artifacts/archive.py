"""Archives of which the same files always give the same bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file


def build_archive(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of contents by path."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:  # stored: an image's Python may lack zlib
        for name, content in sorted(contents.items()):
            member = zipfile.ZipInfo(name, _ZIP_EPOCH)
            member.create_system, member.external_attr = 3, 0o644 << 16  # as on Unix, wherever it is made
            archive.writestr(member, content)
    return buffer.getvalue()
