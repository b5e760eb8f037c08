"""A teardown that is killed and run again ends with the same list; the long one is proofs/test_teardown.py."""

from __future__ import annotations

import random

import pytest
from small_stacks import ACCOUNT, Small, declared
from torn import Torn

from rehearsal.aws.endpoint import AwsEndpoint

pytestmark = pytest.mark.proof

SEED = 7
KILLS = 2


@pytest.fixture(scope="module")
def torn(tmp_path_factory) -> Torn:
    """A small environment that was deployed once."""
    home = tmp_path_factory.mktemp("torn")
    environment = declared(home, "torn")
    with AwsEndpoint(account=ACCOUNT, region="us-east-2", state_dir=home / "deployed") as endpoint:
        Small(environment=environment, endpoint=endpoint, folder=home).deploy()
    made = Torn(
        name="torn", account=ACCOUNT, region="us-east-2", declared=home, state=home / "deployed", home=home
    )  # fmt: skip
    made.undisturbed()
    return made


def test_killed_twice_in_a_row_it_ends_with_the_same_list(torn):
    chance, killed = random.Random(SEED), 0  # noqa: S311 - no secret
    with torn.again() as (endpoint, proxy):
        for _ in range(KILLS):
            proxy.forget()
            killed += torn.killed(endpoint, proxy, torn.moment(chance))
        code, left, said = torn.to_the_end(endpoint, proxy)

    assert (code, killed > 0) == (0, True), said  # the more is gone, the earlier a run may be over
    assert left == torn.expected
