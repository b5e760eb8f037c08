"""`tandem images`: what an environment pulls, what must be mirrored, and the digests behind the tags."""

from __future__ import annotations

from dataclasses import asdict, replace

from tandem.commands.inputs import Selection, legal
from tandem.commands.outcome import Exit, counted, print_json
from tandem.spec.catalogue import DATA
from tandem.spec.images import TOOLS_IMAGE, image_uses


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

        # the base of the tools image is pinned where it is named, in the Dockerfile, because its tag depends on it
        asked = (use for listed in uses.values() for use in listed if use.used_by != (TOOLS_IMAGE,))
        references = {use.reference for use in asked}
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
