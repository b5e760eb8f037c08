"""Folders that the CDK packs as assets: listed files of the repository and no other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent


def copy_files(targets_by_file: Mapping[str, str]) -> str:
    """Copy files of the repository to paths in a new folder, and return it; it goes with the process.

    One folder serves every environment, so that the CDK hashes it once.
    """
    return _copy_files(tuple(targets_by_file.items())).name


@cache
def _copy_files(paths: tuple[tuple[str, str], ...]) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    for file, target_path in paths:
        target = Path(folder.name) / target_path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, target)
    return folder
