"""What the command line says of the images of ours."""

from __future__ import annotations

import json

from bucket_specs import folders

from tandem.cli.program import main
from tandem.declarations.project_image import PROJECT_IMAGES, TOOLS

USERS = [f"{image.name} image" for image in PROJECT_IMAGES]


def test_images_lists_the_base_with_the_digest_of_its_dockerfile(specs, capsys):
    main(["images", "--json", "post-us-east-2", *folders(specs)])

    uses = json.loads(capsys.readouterr().out)["images"]["post-us-east-2"]
    (base,) = [use for use in uses if use["used_by"] == USERS]
    expected = TOOLS.base()
    assert (base["kind"], base["reference"], base["digest"]) == (
        "image",
        expected.reference,
        expected.digest,
    )


def test_resolve_leaves_the_base_to_its_dockerfile(specs, capsys, monkeypatch):
    monkeypatch.setattr(
        "tandem.cli.image_digests.resolve_digests",
        lambda references, _: dict.fromkeys(references, "d"),
    )

    main(["images", "--resolve", "--json", *folders(specs)])

    asked_digests = json.loads(capsys.readouterr().out)["digests"]
    assert asked_digests != {}
    assert TOOLS.base().reference not in asked_digests
