"""`tandem images`: what an environment pulls, what to mirror, and the digests of tags."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
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
        names: environments; all when none is named
        strict: refuse what is only warned of
        seed: print the commands that fill pull-through caches before a first deploy
        resolve: online: ask the registries and write the digests

    Raises:
        InputError: `resolve` in an installed package, whose data no commit holds.
        SpecError: a spec is refused.
        RegistryError: a registry does not answer or does not know a tag.
    """
    if resolve:
        require_checkout("`tandem images --resolve`")
    inputs = read_legal_inputs(selection.narrow(names))
    environments = {environment.name: environment for environment in inputs.environments()}
    uses = {
        name: list_image_uses(environment, inputs.list_experiments(environment), inputs.catalogue)
        for name, environment in environments.items()
    }
    if resolve:
        from tandem.cli.image_digests import resolve_digests  # noqa: PLC0415  # the only part that needs a network

        # a base of ours is pinned where it is named, in its Dockerfile, because the tag of what is
        # built depends on it
        references = {use.reference for group in uses.values() for use in group if not use.is_base}
        digests = resolve_digests(sorted(references), DATA / "platform" / "digests.yaml")
        text = (
            f"wrote {format_count(len(digests), 'digest')}; render again: an artifact key holds its"
            " image's digest"
        )
        print_result({"digests": digests}, [text], as_json=selection.as_json)
        return ExitCode.DONE
    if seed:
        commands = {
            name: list(_list_seed_commands(environments[name], group))
            for name, group in uses.items()
        }
        print_result(
            {"seed": commands}, itertools.chain(*commands.values()), as_json=selection.as_json
        )
        return ExitCode.DONE
    has_unpinned_image = any(use.digest is None for group in uses.values() for use in group)
    code = ExitCode.STALE if strict and has_unpinned_image else ExitCode.DONE
    if selection.as_json:
        print_json(
            {"images": {name: [asdict(use) for use in group] for name, group in uses.items()}}, code
        )
    else:
        for name, group in uses.items():
            print_line(name)
            for use in group:
                print_rows(_list_rows(use), label_columns=7)
    return code


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
