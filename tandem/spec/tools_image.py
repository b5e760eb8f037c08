"""The tools image: what it is built from, its tag, and what a pod writes to pull it.

Invariant: the tag is a digest of the bytes of the build's source and of nothing else, so it is known before the
image exists, the same source has the same tag on every machine, and another source never has it. The list of
files stands once, in `.dockerignore`, where Docker reads it too.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tandem.spec import names
from tandem.spec.environment import Environment

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = "images/tandem/Dockerfile"
ALLOW_LIST = ".dockerignore"
TAG_CHARACTERS = 16
_BASE = re.compile(r"^ARG BASE_IMAGE=(?P<reference>[^\s@]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?$", re.MULTILINE)
_CHINA, _SUFFIX = "amazonaws.com.cn", "amazonaws.com"  # AWS General Reference, ECR endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImage:
    """The image that the tools image stands on.

    Args:
        reference: `repository:tag` as published.
        digest: sha256:..., as the Dockerfile pins it; None where it pins none.
    """

    reference: str
    digest: str | None


def source_files(root: Path = ROOT) -> tuple[str, ...]:
    """Return every file of the build's source, as sorted paths below `root`.

    Raises:
        FileNotFoundError: a line of the allow list admits no file.
    """
    lines = (root / ALLOW_LIST).read_text().splitlines()
    patterns = [line.removeprefix("!") for line in lines if line.startswith("!")]
    found: set[str] = set()
    for pattern in patterns:
        files = [path for path in root.glob(pattern) if path.is_file()]
        if not files:
            raise FileNotFoundError(f"{root / ALLOW_LIST}: {pattern} is no file; remove the line or add the file")
        found.update(path.relative_to(root).as_posix() for path in files)
    return tuple(sorted(found))


@cache
def tag(root: Path = ROOT) -> str:
    """Return the image's tag: 16 hexadecimal digits of the SHA-256 over paths and bytes of its source."""
    digest = hashlib.sha256()
    for file in source_files(root):
        content = (root / file).read_bytes()
        digest.update(f"{file}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:TAG_CHARACTERS]


@cache
def base_image(root: Path = ROOT) -> BaseImage:
    """Return the base that the Dockerfile names."""
    found = _BASE.search((root / DOCKERFILE).read_text())
    assert found is not None, f"{DOCKERFILE} has no line ARG BASE_IMAGE=repository:tag[@sha256:...]"
    return BaseImage(reference=found["reference"], digest=found["digest"])


def registry(environment: Environment) -> str:
    """Return the host of the account's own ECR registry."""
    suffix = _CHINA if environment.region.startswith("cn-") else _SUFFIX
    return f"{environment.account}.dkr.ecr.{environment.region}.{suffix}"


def reference(environment: Environment) -> str:
    """Return what a pod of `environment` pulls: `<registry>/<repository>:<tag>`, never behind a mirror."""
    return f"{registry(environment)}/{names.repository(environment)}:{tag()}"
