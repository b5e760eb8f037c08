"""Build the distribution: only `tandem`, and what its programs read beside it (decision 52).

Invariant: wheel and sdist hold the same package, whatever an earlier build left in the checkout. A
wheel that is built from the sdist takes those files from it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # a build by pip does not have it

from tandem.declarations.checkout import (  # noqa: E402
    CHECKOUT_EXPERIMENT,
    PACKAGE_EXPERIMENT,
    PACKAGE_IMAGES,
    is_checkout,
)
from tandem.declarations.project_image import write_built_images  # noqa: E402

SOURCE_FOLDERS = ("tandem", "tandem.egg-info")
SOURCE_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "PKG-INFO", "README.md")


class BuildPackage(build_py):
    """Copy the package, and write what it reads of the checkout."""

    def run(self) -> None:
        """Build into an empty folder: setuptools would keep modules that the checkout lacks."""
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        if not self.editable_mode:
            write_checkout_files(Path(self.build_lib))


class SourceDistribution(sdist):
    """Pack the package alone; setuptools would add tests, and what an earlier build listed."""

    def make_release_tree(self, base_dir: str, files: Iterable[str]) -> None:
        """Copy the package's files, and write what it reads of the checkout."""
        own_files = [
            file for file in files if file in SOURCE_FILES or Path(file).parts[0] in SOURCE_FOLDERS
        ]
        super().make_release_tree(base_dir, own_files)
        write_checkout_files(Path(base_dir))


def write_checkout_files(package_root: Path) -> None:
    """Write into a built package what a checkout holds beside it; an sdist has it already.

    Args:
        package_root: folder that holds the built `tandem`.
    """
    (package_root / PACKAGE_EXPERIMENT).parent.mkdir(parents=True, exist_ok=True)
    if is_checkout(ROOT):
        write_built_images(ROOT, package_root)
        shutil.copyfile(ROOT / CHECKOUT_EXPERIMENT, package_root / PACKAGE_EXPERIMENT)
        return
    for file in (PACKAGE_IMAGES, PACKAGE_EXPERIMENT):
        shutil.copyfile(ROOT / file, package_root / file)


setup(cmdclass={"build_py": BuildPackage, "sdist": SourceDistribution})
