"""Custom resources, exports, names and boundaries beyond plain MiniStack."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.endpoint, pytest.mark.xdist_group("endpoint")]


@pytest.mark.usefixtures("everything")
def test_a_custom_resource_is_listed_with_what_its_provider_would_get(endpoint):
    (resource,) = [
        item for item in endpoint.list_custom_resources() if item["LogicalId"] == "Manifest"
    ]

    assert resource["Stack"] == "consumer"
    assert resource["Properties"]["Manifest"] == '[{"kind":"Namespace"}]'


def test_the_function_of_a_custom_resource_is_never_invoked(endpoint, everything):
    """It would raise, and the stack would have failed."""
    groups = endpoint.client("logs").describe_log_groups(logGroupNamePrefix="/aws/lambda/")[
        "logGroups"
    ]
    assert [
        group for group in groups if everything["Handler"].physical_id in group["logGroupName"]
    ] == []
