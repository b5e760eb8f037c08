"""`tandem images`: what an environment pulls, what to mirror, and the digests of tags."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

from tandem.cli.console import (
    VerbatimText,
    format_count,
    print_json,
    print_line,
    print_result,
    print_rows,
)
from tandem.cli.inputs import read_legal_inputs
from tandem.cli.selection import DEFAULTS, Selection
from tandem.declarations.catalogue import DATA
from tandem.declarations.checkout import require_checkout
from tandem.declarations.environment import Environment
from tandem.declarations.images import PRIVATE_ECR, ImageUse, list_image_uses, pull_name
from tandem.errors import ExitCode
from tandem.shell_command import quote_command


def images(
    *names: str,
    strict: bool = False,
    seed: bool = False,
    resolve: bool = False,
    selection: Selection = DEFAULTS,
) -> ExitCode:
    """List what an environment pulls and what must be mirrored.

    Args:
        names: environments (default: all)
        strict: exit 1 if an image is not pinned
        seed: print the commands that fill pull-through caches before a first deploy
        resolve: ask the registries for the digests, and write them (needs the internet)

    Raises:
        InputError: `resolve` in an installed package, whose data no commit holds.
        SpecError: a spec is refused.
        RegistryError: a registry does not answer or does not know a tag.
    """
    if resolve:
        require_checkout("`tandem images --resolve`")
    inputs = read_legal_inputs(selection.narrow(names))
    uses = {
        environment.name: list_image_uses(
            environment, inputs.list_experiments(environment), inputs.catalogue
        )
        for environment in inputs.environments()
    }
    if resolve:
        return _resolve_digests(itertools.chain(*uses.values()), as_json=selection.as_json)
    if seed:
        commands = {
            environment.name: list(_list_seed_commands(environment, uses[environment.name]))
            for environment in inputs.environments()
        }
        lines = itertools.chain(*commands.values())
        return print_result({"seed": commands}, lines, as_json=selection.as_json)

    is_open = any(use.digest is None for use in itertools.chain(*uses.values()))
    code = ExitCode.STALE if strict and is_open else ExitCode.DONE
    if selection.as_json:
        rows = {name: list(map(asdict, group)) for name, group in uses.items()}
        return print_json({"images": rows}, code)
    _print_uses(uses)
    return code


def _print_uses(uses: Mapping[str, Iterable[ImageUse]]) -> None:
    for name, group in uses.items():
        print_line(name)
        for use in group:
            print_rows(_list_rows(use), label_columns=7)


def _resolve_digests(uses: Iterable[ImageUse], *, as_json: bool) -> ExitCode:
    """Look the digests up in the registries, and write them into digests.yaml."""
    from tandem.cli.image_digests import resolve_digests  # noqa: PLC0415  # the only part that needs a network

    # a base of ours is pinned where it is named, in its Dockerfile, because the tag of what is
    # built depends on it
    references = {use.reference for use in uses if not use.is_base}
    digests = resolve_digests(sorted(references), DATA / "platform" / "digests.yaml")
    count = format_count(len(digests), "digest")
    text = f"wrote {count}; render again: an artifact key holds its image's digest"
    return print_result({"digests": digests}, [text], as_json=as_json)


def _list_rows(use: ImageUse) -> Iterator[tuple[str, str]]:
    yield use.kind, VerbatimText(use.reference)
    if use.mirrored != use.reference:
        yield "", VerbatimText(f"mirror   {use.mirrored}")
    yield "", VerbatimText(f"digest   {use.digest or 'not pinned: tandem images --resolve'}")
    yield "", f"used by  {', '.join(use.used_by)}"


def _list_seed_commands(environment: Environment, uses: Iterable[ImageUse]) -> Iterator[str]:
    """Yield what fills private ECR's pull-through caches from a machine that reaches the internet.

    A pull from inside a VPC without a way out brings nothing that is not cached yet (ECR user
    guide, "Amazon ECR interface VPC endpoints", considerations). Bases of ours are pulled by
    CodeBuild, which is seldom inside.
    """
    hosts = {}
    pulls = []
    for use in uses:
        match = PRIVATE_ECR.match(use.mirrored)
        if (
            match
            and use.mirrored != use.reference
            and (environment.builds_in_vpc or not use.is_base)
        ):
            hosts[match["host"]] = match["region"]
            pulls.append(use)
    for host, region in sorted(hosts.items()):
        password = quote_command("aws", "ecr", "get-login-password", "--region", region)
        for tool in (["docker"], ["helm", "registry"]):
            yield (
                f"{password} |"
                f" {quote_command(*tool, 'login', '--username', 'AWS', '--password-stdin', host)}"
            )
    for use in pulls:
        if use.kind == "chart":
            name, _, version = use.mirrored.rpartition(":")
            yield quote_command(
                "helm",
                "pull",
                f"oci://{name}",
                "--version",
                version,
                "--destination",
                "/tmp",  # noqa: S108
            )
        else:
            image = pull_name(use.reference, use.digest, environment.registry_mirrors)
            yield quote_command("docker", "pull", "--platform", "linux/amd64", image)
