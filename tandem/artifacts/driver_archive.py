"""The driver as one file that any Python runs: `python driver.pyz`.

Invariant: the same sources make the same bytes; beside the driver nothing of ours is in it.

An interpreter that is given an archive searches it first, before PYTHONPATH and the packages of its image (Python's
"Command line and environment", Interface options); so `tandem` is the archive's own there, whatever the image has
under that name. No variable is set, so what the driver starts inherits nothing of this.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from tandem.artifacts import driver

ARCHIVE_NAME = "driver.pyz"
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
MAIN_SOURCE = b"import sys\n\nfrom tandem.artifacts.driver import main\n\nsys.exit(main())\n"


def build_driver_archive() -> bytes:
    """Return the archive's bytes."""
    folder = Path(driver.__file__).parent
    members = {
        "__main__.py": MAIN_SOURCE,
        "tandem/__init__.py": b"",
        "tandem/artifacts/__init__.py": b"",
        **{f"tandem/artifacts/driver/{path.name}": path.read_bytes() for path in folder.glob("*.py")},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:  # stored: an image's Python may lack zlib
        for name, content in sorted(members.items()):
            member = zipfile.ZipInfo(name, ZIP_EPOCH)
            member.create_system, member.external_attr = 3, 0o644 << 16  # as on Unix, wherever it is made
            archive.writestr(member, content)
    return buffer.getvalue()
