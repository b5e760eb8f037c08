"""What `tandem destroy` prints of what is left."""

from __future__ import annotations

from tandem.cli.destroy import _print_leftovers
from tandem.ops.leftovers import LeftoverResource

NAME = "arn:aws:elasticloadbalancing:us-east-2:111122223333:loadbalancer/app/a-long-name/0123456789"
COMMAND = f"aws elbv2 delete-load-balancer --region us-east-2 --load-balancer-arn {NAME}"


def test_the_command_for_an_orphan_is_never_folded(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    orphan = LeftoverResource(kind="load balancer", name=NAME, remove=COMMAND)

    _print_leftovers([orphan], {})

    assert COMMAND in [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_what_stays_on_purpose_has_no_command(capsys):
    bucket = LeftoverResource(kind="bucket", name="tandem-dev", kept=True, remove=COMMAND)

    _print_leftovers([bucket], {})

    assert COMMAND not in capsys.readouterr().out
