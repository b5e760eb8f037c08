"""`fetch`: before a compile, download the staged models, or report that the artifact is stored.

Invariant: no job compiles an artifact that is stored or that another job compiles now; a model file
has its name only if it has the SHA-256 of its manifest; the same sources give the same bytes of the
driver's archive, and the archive holds only the driver.

The driver is one file that any Python runs, `python driver.pyz`. An interpreter that runs an
archive searches it first, before PYTHONPATH and the packages of its image (Python's "Command line
and environment", Interface options); so `tandem` there is the archive's, even if the image has a
package of that name. No variable is set, so the driver's child processes inherit nothing of this.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from tandem.artifacts import driver, job_env
from tandem.artifacts import manifest as sets
from tandem.artifacts.archive import build_archive
from tandem.artifacts.driver.log import log_event
from tandem.artifacts.files import create_open_folder, require_disk_space
from tandem.artifacts.lease import hold_lease, parse_ttl_s
from tandem.artifacts.s3_transfer import download_files
from tandem.artifacts.store import ObjectStore, open_store
from tandem.declarations.artifact_key import ArtifactKey
from tandem.errors import InputError

PRESENT_NAME = "present"  # in the work folder: the artifact is stored, nothing to do
DISK_SPACE_FACTOR = 2  # artifact bytes per model byte, as in tandem/declarations/disk.py
ARCHIVE_NAME = "driver.pyz"
MAIN_SOURCE = (
    b"import sys\n\nfrom tandem.artifacts.driver.attempts import main\n\nsys.exit(main())\n"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fetch`."""
    job_env.add_bucket_argument(parser)
    parser.add_argument(
        "--model", action="append", required=True, help="organisation/name@revision; repeatable"
    )
    parser.add_argument("--models", type=Path, required=True, help="folder for the models")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the driver, and for what it says"
    )
    parser.add_argument(
        "--lease-s", type=parse_ttl_s, required=True, help="seconds that the whole job may take"
    )


def run(options: argparse.Namespace) -> int:
    """Fetch the models and the driver of a compile; return the exit code.

    Raises:
        InputError: a variable or option is malformed, or a model is not staged.
        StaleError: the stored set of the key's name has another key.
        ExternalError: S3 failed, the disk has too little room, or another job holds the lease.
    """
    key = job_env.read_artifact_key()
    models = job_env.parse_model_references(options.model)
    holder = job_env.read_holder()
    create_open_folder(options.work)
    (options.work / PRESENT_NAME).unlink(missing_ok=True)
    # whole or not at all; always written: the next container runs it
    new_file = options.work / f".{ARCHIVE_NAME}.new"
    new_file.write_bytes(build_driver_archive())
    new_file.chmod(0o644)
    new_file.replace(options.work / ARCHIVE_NAME)
    store = open_store(options.bucket)
    if _skip_if_stored(store, key, options.work):
        return 0
    lease_key = f"{key.prefix}/{sets.LEASE_NAME}"
    with hold_lease(store, lease_key, holder, options.lease_s, 0.0, keep=True) as lease:
        if not _skip_if_stored(store, key, options.work):  # by the holder before us
            _download_models(store, models, options.models)
            lease.check()
    return 0


def _skip_if_stored(store: ObjectStore, key: ArtifactKey, work: Path) -> bool:
    """Return whether the artifact is stored; if so, leave a file for the next containers."""
    manifest = sets.find_stored_set(store, key)
    if manifest is not None:
        (work / PRESENT_NAME).write_text(f"{store.url(sets.manifest_key(key.prefix))}\n")
    return manifest is not None


def _download_models(
    store: ObjectStore, models: Sequence[job_env.ModelReference], folder: Path
) -> None:
    """Download every file of every model; files that are already whole stay."""
    manifests = {}
    needed_bytes = 0
    for model in models:
        manifest = sets.find_stored_set(store, model)
        if manifest is None:
            problem = f"the model {model.name} is not staged: it has no manifest"
            where = store.url(sets.manifest_key(model.prefix))
            raise InputError(problem, where=where, change=f"stage it: {model.command}")
        manifests[model] = manifest
        missing = [
            file for file in manifest.files if not (folder / model.path / file.path).exists()
        ]
        needed_bytes += sum(file.size for file in missing) + DISK_SPACE_FACTOR * manifest.size

    create_open_folder(folder)
    require_disk_space(folder, needed_bytes, "bringing the models and making the artifact")
    for model, manifest in manifests.items():
        start_s = time.monotonic()
        download_files(
            store, sets.files_prefix(model.prefix, manifest), folder / model.path, manifest.files
        )
        seconds = round(time.monotonic() - start_s, 1)
        log_event(
            "model is there",
            model=model.name,
            files=len(manifest.files),
            bytes=manifest.size,
            seconds=seconds,
        )


def build_driver_archive() -> bytes:
    """Return the archive's bytes."""
    folder = Path(driver.__file__).parent
    sources = {
        f"tandem/artifacts/driver/{path.name}": path.read_bytes() for path in folder.glob("*.py")
    }
    sources |= {
        "__main__.py": MAIN_SOURCE,
        "tandem/__init__.py": b"",
        "tandem/artifacts/__init__.py": b"",
    }
    return build_archive(sources)
