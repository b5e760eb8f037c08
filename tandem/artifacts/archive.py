"""Archives of which the same files always give the same bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time of a zip file


def build_archive(contents: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of contents by path."""
    buffer = io.BytesIO()
    # stored: an image's Python may lack zlib
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(contents.items()):
            member = zipfile.ZipInfo(name, _ZIP_EPOCH)
            # as on Unix, wherever it is made
            member.create_system = 3
            member.external_attr = 0o644 << 16
            archive.writestr(member, content)
    return buffer.getvalue()
