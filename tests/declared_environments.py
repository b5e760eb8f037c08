"""The environments of tests/environments, and private-charts a second time, with Argo CD as its
tool."""

from __future__ import annotations

from pathlib import Path

from tandem.declarations.environment import Environment
from tandem.declarations.workspace import load_workspace

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "tests" / "environments"
NAMES = ("customer-keys", "private-charts")
ARGOCD_NAME = "private-charts-argocd"
ARGOCD_DELIVERY = {"tool": "argocd", "namespace": "argocd", "path": f"manifests/{ARGOCD_NAME}"}


def read_environments() -> dict[str, Environment]:
    """Return them by name."""
    own_environments = load_workspace(FOLDER, ROOT / "experiments", NAMES).environments
    environments = {name: file.record for name, file in own_environments.items()}
    flux = environments["private-charts"]
    delivery = flux.delivery.model_copy(update=ARGOCD_DELIVERY)
    return {
        **environments,
        ARGOCD_NAME: flux.model_copy(update={"name": ARGOCD_NAME, "delivery": delivery}),
    }
