"""What `tandem new` writes: legal but for what only its owner knows."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest
from bucket_specs import folders

from tandem.cli.inputs import read_inputs
from tandem.cli.new import CAPACITY_KINDS, INSTANCE_TYPES
from tandem.cli.program import main
from tandem.cli.selection import Selection
from tandem.declarations.catalogue import load_catalogue
from tandem.declarations.record import FILL_IN

UNSOLD = {("trn2u.48xlarge", "spot")}
EVERY = [
    (kind_of, capacity, next(iter(load_catalogue().offerings.offerings[kind_of])), "new")
    for kind_of, capacity in itertools.product(INSTANCE_TYPES, CAPACITY_KINDS)
    if (kind_of, capacity) not in UNSOLD
]
EVERY += [("trn2.48xlarge", "spot", "us-east-2", "existing")]
WARNED = {
    "budget-by-hand",
    "compile-memory",
    "image-vulnerable",
    "images-pinned",
    "reservation-given",
}
WARNED |= {"runtime-supported"}
# 2.235 USD a chip
PRICES = {"trn2.48xlarge": "35.76", "trn2u.48xlarge": "35.76", "trn2.3xlarge": "2.235"}
VALUES = {
    "account": '"210987654321"',
    "admin": "[arn:aws:iam::210987654321:role/Admin]",
    "usd_per_hour_date": "2026-11-20",
    "vpc_id": "vpc-01234567",
    "cidr": "10.50.0.0/16",
}


def selection(folder: Path) -> Selection:
    return Selection(environments=folder / "environments", experiments=folder / "experiments")


def write(folder: Path, *flags: str) -> int:
    return main(["new", "mine", *flags, *folders(folder)])


def filled(text: str, instance_type: str) -> str:
    """Put a value in the place of each placeholder, the price that of the type."""
    values = {**VALUES, "usd_per_hour": PRICES[instance_type]}
    lines = []
    for number, line in enumerate(text.splitlines()):
        value = values.get(line.strip().partition(":")[0])
        own = line.replace("[FILL_IN]", value).replace(FILL_IN, value) if value else line
        own = own.replace("id: FILL_IN", f"id: subnet-{number:08x}")
        lines.append(own.replace("endpoint: FILL_IN", "endpoint: a@acme.dev"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("kind_of", "bought", "region", "vpc"), EVERY, ids=lambda value: value)
def test_check_refuses_placeholders_alone_and_nothing_once_they_are_filled(
    tmp_path, kind_of, bought, region, vpc
):
    assert (
        write(tmp_path, "--type", kind_of, "--kind", bought, "--region", region, "--vpc", vpc) == 0
    )

    faults = read_inputs(selection(tmp_path), now=datetime.now(tz=UTC)).faults
    refusals = [fault for fault in faults if fault.severity == "refusal"]

    path = tmp_path / "environments" / "mine.yaml"
    lines = path.read_text().splitlines()
    assert {fault.got for fault in refusals} == {FILL_IN}
    assert len(refusals) == sum(line.partition("#")[0].count(FILL_IN) for line in lines)
    assert all(fault.line and FILL_IN in lines[fault.line - 1] for fault in refusals)

    path.write_text(filled(path.read_text(), kind_of))
    faults = read_inputs(selection(tmp_path), now=datetime(2026, 11, 22, tzinfo=UTC)).faults

    rules = {fault.rule for fault in faults}
    assert [str(fault) for fault in faults if fault.severity == "refusal"] == []
    assert rules <= WARNED
    assert ("budget-by-hand" in rules) == (region in {"ap-south-2", "ap-southeast-4"})
    assert ("reservation-given" in rules) == (bought in {"capacity-block", "reservation"})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--type", "trn2u.48xlarge", "--kind", "spot"), "capacity-block, reservation, on-demand"),
        (
            ("--region", "eu-nowhere-1"),
            "ap-south-2, ap-southeast-4, sa-east-1, us-east-1, us-east-2, us-west-2",
        ),
    ],
)
def test_what_is_not_sold_is_refused_with_what_is(tmp_path, flags, said, capsys):
    assert write(tmp_path, *flags) == 2
    assert f"allowed  {said}" in capsys.readouterr().err
    assert list(tmp_path.rglob("*.yaml")) == []


def test_check_tells_each_placeholder_in_one_line(tmp_path, capsys):
    write(tmp_path)
    capsys.readouterr()

    code = main(["check", "mine", *folders(tmp_path)])

    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("fill in: ")]
    assert (code, len(lines)) == (2, 5)
    assert lines[0].endswith("mine.yaml:4: account: 12 digits in quotes")
