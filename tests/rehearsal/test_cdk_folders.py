"""Where the CDK CLI synthesizes: never where another one does."""

from __future__ import annotations

from types import SimpleNamespace

from rehearsal.aws.cdk_cli import CdkCli


def test_each_command_synthesizes_into_a_folder_of_its_own(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(CdkCli, "run", lambda _, *words, **_more: calls.append(words) or "")
    here = SimpleNamespace(account="222233334444", region="us-east-2")
    cdk = CdkCli(
        endpoint=here,
        sandbox=SimpleNamespace(name="e", environments="a", experiments="b"),
        work_folder=tmp_path,
    )

    for act in (cdk.deploy, cdk.diff, cdk.destroy):
        act()

    folders = [words[words.index("--output") + 1] for words in calls]
    assert [folder for folder in folders if not folder.startswith(str(tmp_path))] == []
