"""Complete an image's SBOM: add to the Python packages of cyclonedx-py all else in the image.

Runs in the build stage, by the base's Python and the standard library: `python sbom.py
PACKAGES.json --name NAME --base REFERENCE [--component PURL ...] --out FILE`. What it adds: the
base by its digest, its Python, its Debian packages, and each component that the recipe names. The
same build gives the same bytes: no time, no serial number, sorted.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

Component = dict[str, Any]


def main(argument_words: Sequence[str] | None = None) -> int:
    """Write the SBOM and return the exit code."""
    parser = argparse.ArgumentParser(prog="sbom.py", description=__doc__)
    parser.add_argument("packages", type=Path, help="what `cyclonedx-py environment` wrote")
    parser.add_argument("--name", required=True, help="the image's name")
    parser.add_argument("--base", required=True, help="the base image: REPOSITORY:TAG[@sha256:...]")
    parser.add_argument(
        "--component",
        action="append",
        default=[],
        metavar="PURL",
        help="package URL of another part",
    )
    parser.add_argument("--out", type=Path, required=True, help="the file that is written")
    arguments = parser.parse_args(argument_words)
    document = json.loads(arguments.packages.read_text())
    document["metadata"]["component"] = {
        "bom-ref": arguments.name,
        "name": arguments.name,
        "type": "container",
    }
    document["components"] += [
        describe_base(arguments.base),
        describe_python(),
        *(describe_purl(purl) for purl in arguments.component),
        *list_debian_packages(),
    ]
    document["components"].sort(key=lambda component: component["bom-ref"])
    arguments.out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    return 0


def describe_base(reference: str) -> Component:
    """Return the base image as a component; its version is the digest if given, else the tag."""
    name, _, digest = reference.partition("@")
    repository, _, tag = name.rpartition(":")
    version = digest or tag
    short = repository.rpartition("/")[2]
    purl = f"pkg:oci/{short}@{quote(version, safe='')}?repository_url={repository}&tag={tag}"
    return {
        "bom-ref": purl,
        "name": repository,
        "version": version,
        "purl": purl,
        "type": "container",
    }


def describe_python() -> Component:
    """Return the interpreter, with the name by which vulnerability databases know it."""
    version = platform.python_version()
    return {
        "bom-ref": f"pkg:generic/python@{version}",
        "name": "python",
        "version": version,
        "type": "application",
        "purl": f"pkg:generic/python@{version}",
        "cpe": f"cpe:2.3:a:python:python:{version}:*:*:*:*:*:*:*",
    }


def describe_purl(purl: str) -> Component:
    """Return a component that is known by its package URL: pkg:TYPE/NAME@VERSION."""
    name, _, version = purl.partition("/")[2].partition("@")
    return {
        "bom-ref": purl,
        "name": unquote(name),
        "version": version,
        "purl": purl,
        "type": "library",
    }


def list_debian_packages() -> Iterator[Component]:
    """Yield the packages that dpkg has installed; none where there is no dpkg."""
    dpkg = shutil.which("dpkg-query")
    if dpkg is None:
        return
    system = platform.freedesktop_os_release()
    form = "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\n"
    result = subprocess.run(  # noqa: S603
        [dpkg, "--show", f"--showformat={form}"], capture_output=True, text=True, check=True
    )
    for line in result.stdout.splitlines():
        status, name, version, architecture = line.split()
        # "ii", or "hi" of one that is held; "rc" left its configuration alone
        if not status.endswith("i"):
            continue
        qualifiers = f"arch={architecture}&distro={system['ID']}-{system.get('VERSION_ID', 'sid')}"
        purl = f"pkg:deb/{system['ID']}/{quote(name)}@{quote(version)}?{qualifiers}"
        yield {"bom-ref": purl, "name": name, "version": version, "purl": purl, "type": "library"}


if __name__ == "__main__":
    sys.exit(main())
