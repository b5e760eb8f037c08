"""`tandem images`: what an environment pulls, what must be mirrored, and the digests behind the tags."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace

from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, counted, print_json
from tandem.commands.selection import Selection, add_names
from tandem.shell_command import quote_command
from tandem.spec.catalogue import DATA
from tandem.spec.environment import Environment
from tandem.spec.images import PRIVATE_ECR, ImageUse, image_uses


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_names(parser)
    parser.add_argument(
        "--seed", action="store_true", help="print the commands that fill pull-through caches before a first deploy"
    )
    parser.add_argument("--resolve", action="store_true", help="online: ask the registries and write the digests")


def images(chosen: Selection, *, resolve: bool, seed: bool = False) -> Exit:
    """List every image and chart of the named environments.

    Args:
        chosen: environments and folders.
        resolve: ask the registries for digests, and write them.
        seed: print in place of the list what pulls each image through its mirror for the first time.

    Raises:
        SpecError: a spec is refused.
        ResolveError: a registry does not answer or does not know a tag.
    """
    inputs = legal(replace(chosen, strict=False))
    uses = {
        environment.name: image_uses(environment, inputs.hosted(environment), inputs.catalogue)
        for environment in inputs.environments()
    }
    if resolve:
        from tandem.commands.resolve import resolve_digests  # noqa: PLC0415  # the only part that needs a network

        # a base of ours is pinned where it is named, in its Dockerfile, because the tag of what is built depends on it
        references = {use.reference for listed in uses.values() for use in listed if not use.is_base}
        written = resolve_digests(sorted(references), DATA / "platform" / "digests.yaml")
        if chosen.as_json:
            print_json({"digests": written})
        else:
            print(f"wrote {counted(len(written), 'digest')}; render again: an artifact key holds its image's digest")
        return Exit.DONE
    if seed:
        commands = {
            environment.name: list(list_seed_commands(environment, uses[environment.name]))
            for environment in inputs.environments()
        }
        if chosen.as_json:
            print_json({"seed": commands})
        else:
            print("\n".join(line for lines in commands.values() for line in lines))
        return Exit.DONE
    unpinned = any(use.digest is None for listed in uses.values() for use in listed)
    code = Exit.STALE if chosen.strict and unpinned else Exit.DONE
    if chosen.as_json:
        print_json({"images": {name: [asdict(use) for use in listed] for name, listed in uses.items()}})
        return code
    for name, listed in uses.items():
        print(name)
        for use in listed:
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
    behind = [use for use in uses if use.mirrored != use.reference and (environment.builds_in_vpc or not use.is_base)]
    hosts = {match["host"]: match["region"] for use in behind if (match := PRIVATE_ECR.match(use.mirrored))}
    for host, region in sorted(hosts.items()):
        password = quote_command("aws", "ecr", "get-login-password", "--region", region)
        for tool in ("docker", "helm registry"):
            login = quote_command(*tool.split(), "login", "--username", "AWS", "--password-stdin", host)
            yield f"{password} | {login}"
    for use in behind:
        if use.mirrored.partition("/")[0] not in hosts:
            continue
        if use.kind == "chart":
            name, _, version = use.mirrored.rpartition(":")
            yield quote_command("helm", "pull", f"oci://{name}", "--version", version, "--destination", "/tmp")  # noqa: S108
        else:
            yield quote_command("docker", "pull", "--platform", "linux/amd64", use.pulled)
