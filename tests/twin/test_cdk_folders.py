"""Where the CDK CLI synthesizes: never where another one does."""

from __future__ import annotations

from types import SimpleNamespace

from tandem.twin.aws.cdk import Cdk
from tandem.twin.aws.installation import REPOSITORY


def test_each_command_synthesizes_into_a_folder_of_its_own(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Cdk, "run", lambda _, *words: asked.append(words) or "")
    here = SimpleNamespace(account="222233334444", region="us-east-2")
    cdk = Cdk(endpoint=here, scene=SimpleNamespace(name="e", environments="a", experiments="b"), work=tmp_path)

    cdk.bootstrap("tandem")
    for act in (cdk.deploy, cdk.diff, cdk.destroy):
        act()

    folders = [words[words.index("--output") + 1] for words in asked]
    assert [folder for folder in folders if not folder.startswith(str(tmp_path))] == []
    assert str(REPOSITORY / "cdk.out") not in folders
