"""`tandem images`: what an environment pulls, what must be mirrored, and the digests behind the tags."""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace

from tandem.commands.inputs import legal
from tandem.commands.outcome import Exit, counted, print_json
from tandem.commands.selection import Selection, add_names
from tandem.spec.catalogue import DATA
from tandem.spec.images import image_uses


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    add_names(parser)
    parser.add_argument("--resolve", action="store_true", help="online: ask the registries and write the digests")


def images(chosen: Selection, *, resolve: bool) -> Exit:
    """List every image and chart of the named environments; with `resolve` ask their registries for digests.

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
