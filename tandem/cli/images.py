"""`tandem images`: what an environment pulls, what must be mirrored, and the digests behind the tags."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

from tandem.cli.inputs import read_legal_inputs
from tandem.cli.outcome import format_count, print_json
from tandem.cli.selection import Selection, add_name_flags
from tandem.errors import ExitCode
from tandem.shell_command import quote_command
from tandem.spec.catalogue import DATA
from tandem.spec.environment import Environment
from tandem.spec.images import PRIVATE_ECR, ImageUse, list_image_uses


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_name_flags(parser)
    parser.add_argument(
        "--seed", action="store_true", help="print the commands that fill pull-through caches before a first deploy"
    )
    parser.add_argument("--resolve", action="store_true", help="online: ask the registries and write the digests")


def images(selection: Selection, *, resolve: bool, seed: bool = False) -> ExitCode:
    """List every image and chart of the named environments.

    Args:
        selection: environments and folders.
        resolve: ask the registries for digests, and write them.
        seed: print in place of the list what pulls each image through its mirror for the first time.

    Raises:
        SpecError: a spec is refused.
        ResolveError: a registry does not answer or does not know a tag.
    """
    inputs = read_legal_inputs(replace(selection, strict=False))
    uses = {
        environment.name: list_image_uses(environment, inputs.list_experiments(environment), inputs.catalogue)
        for environment in inputs.environments()
    }
    if resolve:
        from tandem.cli.image_digests import resolve_digests  # noqa: PLC0415  # the only part that needs a network

        # a base of ours is pinned where it is named, in its Dockerfile, because the tag of what is built depends on it
        references = {
            use.reference for environment_uses in uses.values() for use in environment_uses if not use.is_base
        }
        digests = resolve_digests(sorted(references), DATA / "platform" / "digests.yaml")
        if selection.as_json:
            print_json({"digests": digests})
        else:
            print(
                f"wrote {format_count(len(digests), 'digest')}; render again: an artifact key holds its image's digest"
            )
        return ExitCode.DONE
    if seed:
        commands = {
            environment.name: list(list_seed_commands(environment, uses[environment.name]))
            for environment in inputs.environments()
        }
        if selection.as_json:
            print_json({"seed": commands})
        else:
            print("\n".join(line for lines in commands.values() for line in lines))
        return ExitCode.DONE
    has_unpinned_image = any(use.digest is None for environment_uses in uses.values() for use in environment_uses)
    code = ExitCode.STALE if selection.strict and has_unpinned_image else ExitCode.DONE
    if selection.as_json:
        print_json(
            {"images": {name: [asdict(use) for use in environment_uses] for name, environment_uses in uses.items()}}
        )
        return code
    for name, environment_uses in uses.items():
        print(name)
        for use in environment_uses:
            print(f"  {use.kind:<6} {use.reference}")
            if use.mirrored != use.reference:
                print(f"         mirror  {use.mirrored}")
            print(f"         digest  {use.digest or 'not pinned: tandem images --resolve'}")
            print(f"         used by {', '.join(use.used_by)}")
    return code


def list_seed_commands(environment: Environment, uses: Iterable[ImageUse]) -> Iterator[str]:
    """Yield what fills private ECR's pull-through caches from a machine that reaches the internet.

    A pull from inside a VPC without a way out brings nothing that is not cached yet (ECR user guide, "Amazon ECR
    interface VPC endpoints", considerations). Bases of ours are pulled by CodeBuild, which is seldom inside.
    """
    mirror_uses = [
        use for use in uses if use.mirrored != use.reference and (environment.builds_in_vpc or not use.is_base)
    ]
    hosts = {match["host"]: match["region"] for use in mirror_uses if (match := PRIVATE_ECR.match(use.mirrored))}
    for host, region in sorted(hosts.items()):
        password = quote_command("aws", "ecr", "get-login-password", "--region", region)
        for tool in ("docker", "helm registry"):
            login = quote_command(*tool.split(), "login", "--username", "AWS", "--password-stdin", host)
            yield f"{password} | {login}"
    for use in mirror_uses:
        if use.mirrored.partition("/")[0] not in hosts:
            continue
        if use.kind == "chart":
            name, _, version = use.mirrored.rpartition(":")
            yield quote_command("helm", "pull", f"oci://{name}", "--version", version, "--destination", "/tmp")  # noqa: S108
        else:
            yield quote_command("docker", "pull", "--platform", "linux/amd64", use.pull_reference)
