"""The Dockerfiles of our images, read, and the build stage of one carried out in a folder."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.declarations.project_image import LM_EVAL, ROOT, RUN, TOOLS, ProjectImage

# made by `make test` and `make proof`, kept until `make clean`; `make quality` has a .venv-lm-eval
FOLDERS = {
    TOOLS: ROOT / ".venv-tools",
    RUN: ROOT / ".venv-run",
    LM_EVAL: ROOT / ".venv-lm-eval-image",
}
FOLDER = FOLDERS[TOOLS]
STAMP = "installed.sha256"


@dataclass(frozen=True)
class Instruction:
    stage: int  # 0 before the first FROM
    word: str
    text: str


def instructions(image: ProjectImage = TOOLS) -> list[Instruction]:
    """Return the Dockerfile's instructions, continued lines joined, comments left out."""
    lines = [
        line
        for line in (ROOT / image.dockerfile).read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    joined_copy = "\n".join(lines).replace("\\\n", " ")
    result = []
    stage = 0
    for line in filter(None, map(str.strip, joined_copy.splitlines())):
        word, _, text = line.partition(" ")
        stage += word == "FROM"
        result.append(Instruction(stage, word, " ".join(text.split())))
    return result


def folder_inside(image: ProjectImage = TOOLS) -> str:
    """Return where the image has what the folder has."""
    (folder,) = [
        instruction.text for instruction in instructions(image) if instruction.word == "WORKDIR"
    ]
    return folder


def last_stage(image: ProjectImage = TOOLS) -> list[Instruction]:
    stages = instructions(image)
    return [item for item in stages if item.stage == stages[-1].stage]


def text(word: str, image: ProjectImage = TOOLS) -> str:
    """Return the text of the last stage's only instruction of a kind."""
    (result,) = [item.text for item in last_stage(image) if item.word == word]
    return result


def environment(folder: Path, image: ProjectImage = TOOLS) -> dict[str, str]:
    """Return the variables that the image sets, with the folder in the place that it has there."""
    pairs = re.findall(r"(\w+)=(\S+)", text("ENV", image))
    return {name: value.replace(folder_inside(image), str(folder)) for name, value in pairs}


def install(image: ProjectImage) -> None:
    """Carry out what the build stage installs, as Docker would; what the same lines installed
    before is kept.

    Raises:
        subprocess.CalledProcessError: a RUN of the Dockerfile failed.
    """
    folder = FOLDERS[image]
    folder.mkdir(exist_ok=True)
    steps, _ = _build_steps(image)
    stamp = folder / STAMP
    wanted_digest = _digest(steps, image)
    if stamp.exists() and stamp.read_text() == wanted_digest:
        return
    sys.stdout.write(f"==> packages of the image {image.name} into {folder.name}\n")
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder / "packages", ignore_errors=True)
    _carry_out(steps, image)
    stamp.write_text(wanted_digest)


def built(image: ProjectImage = TOOLS) -> Path:
    """Carry out the rest of the build stage in the image's folder, where `install` has been.

    Raises:
        subprocess.CalledProcessError: a RUN of the Dockerfile failed.
    """
    folder = FOLDERS[image]
    steps, rest = _build_steps(image)
    stamp = folder / STAMP
    is_current = stamp.exists() and stamp.read_text() == _digest(steps, image)
    assert is_current, f"run first: .venv/bin/python tests/images/recipe.py {image.name}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(folder / "source", ignore_errors=True)
        _carry_out(rest, image)
    return folder


def _build_steps(image: ProjectImage) -> tuple[list[Instruction], list[Instruction]]:
    """Return what the build stage installs, and what it does after it: copy our source and list the
    packages."""
    stage = [instruction for instruction in instructions(image) if instruction.stage == 1]
    source = next(index for index, item in enumerate(stage) if item.text == "tandem source/tandem")
    return stage[:source], stage[source:]


def _digest(steps: list[Instruction], image: ProjectImage) -> str:
    files = [source for step in steps if step.word == "COPY" for source in step.text.split()[:-1]]
    contents = [(ROOT / file).read_text() for file in files]
    result = [sys.version, *contents, *(f"{step.word} {step.text}" for step in steps), _base(image)]
    return hashlib.sha256("\n".join(result).encode()).hexdigest()


def _base(image: ProjectImage) -> str:
    base = image.base()
    return f"{base.reference}@{base.digest}"


def _carry_out(steps: list[Instruction], image: ProjectImage) -> None:
    folder = FOLDERS[image]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    for step in steps:
        if step.word == "COPY":
            *sources, target = step.text.split()
            for source in sources:
                _copy(source, folder / target, image)
        elif step.word == "RUN":
            command = step.text.replace(folder_inside(image), str(folder))
            variables = {**os.environ, "PATH": path, "BASE_IMAGE": _base(image)}
            subprocess.run(["sh", "-ec", command], cwd=folder, env=variables, check=True)


def _copy(source: str, target: Path, image: ProjectImage) -> None:
    """Copy what the context shows of `source`: a file to `target`, a folder's content into it."""
    for file in admitted(source, image):
        place = target / Path(file).relative_to(source) if file != source else target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, place)


def admitted(source: str, image: ProjectImage = TOOLS) -> Iterator[str]:
    return (
        file for file in image.source_files() if file == source or file.startswith(f"{source}/")
    )


def closed_off(user: str) -> list[str]:
    """Return the words that start a program as `user` of no rights over a read-only file system;
    none if refused here.

    Args:
        user: uid:gid.
    """
    uid, _, gid = user.partition(":")
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-ec",
        'mount -o bind,remount,ro / && exec "$@"',
        "-",
        "unshare",
        "--user",
        f"--map-user={uid}",
        f"--map-group={gid}",
    ]
    if (
        shutil.which("unshare")
        and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
    ):
        return words
    return []


if __name__ == "__main__":
    for folder in FOLDERS:
        if folder.name in sys.argv[1:]:
            install(folder)
