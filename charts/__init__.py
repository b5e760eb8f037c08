"""What the cluster runs, said once for both doors: `cdk deploy` and the rendered manifests.

Invariant: a chart reads declared values and names only. No CDK token reaches it, no name carries a hash, and
no chart depends on another: their order is data (`STAGES`), which each door spells its own way.
"""

from __future__ import annotations

from charts.workloads import STAGES, list_stages, render_workloads

__all__ = ["STAGES", "list_stages", "render_workloads"]
