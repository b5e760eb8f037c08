"""Additions to MiniStack for the stacks of this project, put into its tables from outside.

MiniStack has no plugin API, so each module here uses private names. The launcher reads them from
the module's source and refuses to start if one is missing: a version that moved them must never
rehearse half a deploy.
"""

from __future__ import annotations

from . import (
    alarms,
    bucket,
    budgets,
    builds,
    capacity_blocks,
    custom_resources,
    dashboards,
    eks_api,
    eks_types,
    event_rules,
    fleet_instances,
    fleet_settings,
    launch_template,
    metric_namespace,
    network,
    node_group_api,
    node_groups,
    permissions,
    registry,
    resource_fields,
    resource_import,
    s3_errors,
    s3_parts,
    s3_store,
    scaling_groups,
    scheduler_role,
    schedules,
    service_names,
    topics,
    universal_targets,
)

MODULES = (
    resource_import,
    network,
    launch_template,
    bucket,
    s3_errors,
    s3_parts,
    s3_store,
    resource_fields,
    fleet_settings,
    fleet_instances,
    node_groups,
    capacity_blocks,
    scaling_groups,
    eks_api,
    node_group_api,
    permissions,
    eks_types,
    scheduler_role,
    universal_targets,
    event_rules,
    schedules,
    registry,
    builds,
    budgets,
    alarms,
    dashboards,
    topics,
    metric_namespace,
    custom_resources,
    service_names,
)
