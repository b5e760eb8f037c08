"""Ask registries for the digest behind a tag and keep it in the data, with its date.

Invariant: only `tandem images --resolve` and `tandem doctor` come here; synthesis never does.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
import yaml
from dxf import DXF
from dxf.exceptions import DXFError

from tandem.ops.doctor.context import MissingImageError, RegistryError

TIMEOUT_S = 20.0
HEADER = (
    "# Written by `tandem images --resolve`: image reference to the digest its registry gave.\n"
)


def open_public_registry(host: str, repository: str) -> DXF:
    """Open a repository of a public registry over HTTPS as an anonymous reader."""

    def authenticate(client: Any, response: requests.Response) -> None:
        client.authenticate(response=response)

    return DXF(host, repository, auth=authenticate, timeout=TIMEOUT_S)


def resolve_digests(
    references: list[str],
    file: Path,
    open_registry: Callable[[str, str], DXF] = open_public_registry,
) -> dict[str, str]:
    """Read the digest of each `host/repository:tag` and write all of them to `file`.

    Returns:
        Reference to `sha256:...`, as written.

    Raises:
        RegistryError: naming the reference and what the registry said; `file` is left as it was.
    """
    digests = {reference: resolve_digest(reference, open_registry) for reference in references}
    today = datetime.now(tz=UTC).date().isoformat()
    old_data = yaml.safe_load(file.read_text()) if file.exists() else {}
    entries = dict(old_data.get("digests") or {})
    sources = dict(old_data.get("sources") or {})
    for reference, digest in digests.items():
        host = reference.partition("/")[0]
        entries[reference] = {"value": digest, "source": f"{host}-{today}"}
        sources[f"{host}-{today}"] = {
            "where": f"{host}, manifest digest by registry API v2",
            "date": today,
        }
    used_sources = sorted({entry["source"] for entry in entries.values()})
    body = {
        "digests": dict(sorted(entries.items())),
        "sources": {key: sources[key] for key in used_sources},
    }
    file.write_text(HEADER + yaml.safe_dump(body, sort_keys=False))
    return digests


def resolve_digest(
    reference: str, open_registry: Callable[[str, str], DXF] = open_public_registry
) -> str:
    """Ask a registry for a tag's digest, or whether it has `host/repository@sha256:...`.

    Raises:
        MissingImageError: it has no such image.
        RegistryError: it did not answer, or not to an anonymous reader.
    """
    name, separator, alias = reference.partition("@")
    if not separator:
        name, _, alias = reference.rpartition(":")
    host, _, repository = name.partition("/")
    try:
        with open_registry(host, repository) as registry:
            digest, _ = registry.head_manifest_and_response(alias)
    except (DXFError, requests.RequestException, KeyError) as error:
        answer = getattr(error, "response", None)
        if answer is not None and answer.status_code == requests.codes.not_found:
            raise MissingImageError(f"its registry has no {reference}") from error
        inner_error = error.args[0] if error.args else error
        reason = (
            " ".join(str(getattr(inner_error, "reason", error)).split()) or type(error).__name__
        )
        raise RegistryError(f"{reference}: {host} gave no digest: {reason}") from error
    return str(digest)
