"""The images built in the account: what each is built from, its tag, and how a pod pulls it.

Invariant: a tag is a digest of the bytes of the image's source and of nothing else, so it is known
before the image exists, the same source has the same tag on every machine, and another source never
has it. The list of an image's files stands once, next to its Dockerfile as
`Dockerfile.dockerignore`, where BuildKit reads it too (docs.docker.com/build/concepts/context,
"Filename and location"), so that each image has a list of its own.

An installed package has no recipes. The build of the package writes tags and bases into it
(setup.py, decision 52), so it needs no library: of what this module imports, only annotations need
pydantic.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tandem.declarations import names
from tandem.declarations.checkout import PACKAGE_IMAGES, ROOT, is_checkout

if TYPE_CHECKING:
    from tandem.declarations.environment import Environment
    from tandem.declarations.experiment import Experiment

TAG_CHARACTERS = 16
PAIR_SIZE = 2
_BASE = re.compile(
    r"^ARG BASE_IMAGE=(?P<reference>[^\s@]+)(?:@(?P<digest>sha256:[0-9a-f]{64}))?$", re.MULTILINE
)
# AWS General Reference, ECR endpoints
_CHINA_SUFFIX = "amazonaws.com.cn"
_DEFAULT_SUFFIX = "amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    """The image that one of ours stands on.

    Args:
        reference: `repository:tag` as published.
        digest: sha256:..., as the Dockerfile pins it; None where it pins none.
    """

    reference: str
    digest: str | None


@dataclass(frozen=True, kw_only=True)
class ProjectImage:
    """One image that is built from this repository.

    Args:
        name: last word of its repository's name.
        folder: of its recipe.
    """

    name: str
    folder: str

    @property
    def dockerfile(self) -> str:
        """Return the recipe's path."""
        return f"{self.folder}/Dockerfile"

    @property
    def allow_list(self) -> str:
        """Return the path of the list of all that a build sees."""
        return f"{self.dockerfile}.dockerignore"

    def source_files(self, root: Path = ROOT) -> tuple[str, ...]:
        """Return every file of the build's source, as sorted paths below `root`.

        Raises:
            FileNotFoundError: a line of the allow list admits no file.
        """
        allow_list = root / self.allow_list
        paths = set()
        for line in allow_list.read_text().splitlines():
            if not line.startswith("!"):
                continue
            pattern = line.removeprefix("!")
            files = [
                path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file()
            ]
            if not files:
                raise FileNotFoundError(
                    f"{allow_list}: {pattern} is no file; remove the line or add the file"
                )
            paths.update(files)
        return tuple(sorted(paths))

    def tag(self, root: Path = ROOT) -> str:
        """Return the image's tag: 16 hex digits of the SHA-256 over source paths and bytes."""
        built_tag: str | None = _read_built_images(root).get(self.name, {}).get("tag")
        return built_tag or _compute_tag(self, root)

    def base(self, root: Path = ROOT) -> BaseImage:
        """Return the base that the Dockerfile names."""
        built_image = _read_built_images(root).get(self.name)
        if built_image is not None:
            return BaseImage(**built_image["base"])
        match = _BASE.search((root / self.dockerfile).read_text())
        assert match is not None, (
            f"{self.dockerfile} has no line ARG BASE_IMAGE=repository:tag[@sha256:...]"
        )
        return BaseImage(reference=match["reference"], digest=match["digest"])

    def reference(self, environment: Environment) -> str:
        """Return what a pod of `environment` pulls: `<registry>/<repository>:<tag>`, no mirror."""
        repository = names.repository_name(environment, self.name)
        return f"{registry_host(environment)}/{repository}:{self.tag()}"


TOOLS = ProjectImage(name="tools", folder="images/tandem")
LLMPERF = ProjectImage(name="llmperf", folder="images/llmperf")
# apart from the tools image, which stands in every server's pod and must not change with a sentence
# of the judge
RUN = ProjectImage(name="run", folder="images/run")
LM_EVAL = ProjectImage(name="lm-eval", folder="images/lm-eval")

BUILD_MINUTES = 8
"""At most, of each image: the timeout of its CodeBuild project, and what `tandem show` prices."""

PROJECT_IMAGES = (TOOLS, RUN, LLMPERF, LM_EVAL)


def list_hosted_images(experiments: Iterable[Experiment]) -> tuple[ProjectImage, ...]:
    """Return the images an environment's pods run: two always, others if experiments need them."""
    hosted = tuple(experiments)
    needs = {
        LLMPERF: any(has_llmperf(experiment) for experiment in hosted),
        LM_EVAL: any(experiment.quality for experiment in hosted),
    }
    return tuple(image for image in PROJECT_IMAGES if needs.get(image, True))


def has_llmperf(experiment: Experiment) -> bool:
    """Return whether llmperf runs next to an experiment: a pair measured by the post's own suite.

    llmperf makes its prompts by itself, so its figures say nothing of another suite; and it is
    there to do what the post did, which drove two services at the same moment: of the servers of a
    sweep, no two are that pair.
    """
    return "post" in experiment.suites and len(experiment.all_variants()) == PAIR_SIZE


def write_built_images(source: Path, package_root: Path) -> None:
    """Write the tag and the base of each image into a package that is being built.

    Args:
        source: root of the checkout, with the recipes.
        package_root: folder that holds the built `tandem`.
    """
    images = {
        image.name: {"tag": image.tag(source), "base": asdict(image.base(source))}
        for image in PROJECT_IMAGES
    }
    (package_root / PACKAGE_IMAGES).write_text(json.dumps(images, indent=2) + "\n")


@cache
def _read_built_images(root: Path) -> dict[str, Any]:
    """Return what the installed package's build wrote, by image name; nothing in a checkout."""
    return {} if is_checkout(root) else json.loads((root / PACKAGE_IMAGES).read_text())


@cache
def _compute_tag(image: ProjectImage, root: Path) -> str:
    digest = hashlib.sha256()
    for file in image.source_files(root):
        content = (root / file).read_bytes()
        digest.update(f"{file}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:TAG_CHARACTERS]


def registry_host(environment: Environment) -> str:
    """Return the host of the account's own ECR registry."""
    suffix = _CHINA_SUFFIX if environment.region.startswith("cn-") else _DEFAULT_SUFFIX
    return f"{environment.account}.dkr.ecr.{environment.region}.{suffix}"
