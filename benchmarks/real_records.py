"""The records of `make real` in the repository, for others to compute with: real_records/.

    python benchmarks/real_records.py build/real_records

unpacks them into a new folder, which `tandem bench report` and `benchmarks/real.py --report` read
like any other.

The repository keeps the folders of `tandem bench run` themselves, packed, with the further facts of
`make real` (facts.json). A table of TTFT, E2E and TPOT would be smaller. But it would be a second
form of a request: nobody could make a verdict from it or derive its figures again. Texts and token
ids stay too, because the verdict needs them to judge the outputs. Packed, both runs take a fifth of
their 1.2 MB.

Invariant: the unpacked records have the measured values, in the present schema of records, except
the flags in the manifest. Flags only help to resume a run, which nobody can do here, and they name
files of the machine.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tandem.bench.load import host
from tandem.bench.records import counters, manifest
from tandem.bench.records.folder import RECORDS_FILE
from tandem.errors import InputError, TandemError

ROOT = Path(__file__).resolve().parent.parent

KEPT = ROOT / "benchmarks" / "real_records"
FACTS = "facts.json"
PACKED = (RECORDS_FILE, counters.FILE, host.FILE)
README = """# Records of real servers

Two runs of `make real`: n-gram drafts against none, and the model as its own draft against none.

{measured}

`python benchmarks/real_records.py build/real_records` unpacks them (`benchmarks/real_records.py`
says what is kept and why), `make real KEEP=1` writes them anew. The model is SmolLM2-135M-Instruct
(Apache-2.0).
"""


def keep_records(folder: Path, runs: Sequence[str], measured: str, kept: Path) -> None:
    """Pack a measurement in place of the kept one.

    Args:
        folder: of `make real`, with facts.json.
        runs: names of the folders of `tandem bench run` in it.
        measured: one line of Markdown: command, date and machine.
        kept: folder of the packed records.

    Raises:
        InputError: a run has no manifest. ExternalError: `kept` cannot be written to.
    """
    manifests = {run: manifest.read_manifest(folder / run) for run in runs}
    shutil.rmtree(kept, ignore_errors=True)
    for run, stated in manifests.items():
        (kept / run).mkdir(parents=True)
        manifest.write_manifest(kept / run, msgspec.structs.replace(stated, flags={}))
        for path in (folder / run / name for name in PACKED):
            if path.exists():
                (kept / run / f"{path.name}.gz").write_bytes(
                    gzip.compress(path.read_bytes(), 9, mtime=0)
                )
    shutil.copyfile(folder / FACTS, kept / FACTS)
    (kept / "README.md").write_text(README.format(measured=measured))


def restore_records(folder: Path, kept: Path = KEPT) -> Path:
    """Unpack the kept measurement into a new folder and return it.

    Raises:
        InputError: the folder is there already.
    """
    if folder.exists():
        raise InputError(
            "the folder is there already", where=str(folder), change="name a new one, or remove it"
        )
    shutil.copytree(kept, folder)
    for path in folder.rglob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """Unpack the records; return the exit code."""
    parser = argparse.ArgumentParser(description="unpack the kept records of `make real`")
    parser.add_argument("folder", type=Path, help="new folder to unpack into")
    try:
        print(restore_records(parser.parse_args(argv).folder))
    except TandemError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
