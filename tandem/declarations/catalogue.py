"""Everything known of models, runtimes and the platform, read from the dated data files.

Invariant: a data file that cites no source is refused at load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tandem.declarations.figure import read_data_file
from tandem.declarations.model import ModelConfig
from tandem.declarations.platform import (
    DigestTable,
    DraChart,
    InstanceTable,
    KubernetesTable,
    OfferingTable,
    StandingPrices,
    WatchPrices,
)
from tandem.declarations.runtime import Runtime

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The data files, parsed."""

    models: dict[str, ModelConfig]
    runtimes: dict[str, Runtime]
    instances: InstanceTable
    offerings: OfferingTable
    kubernetes: KubernetesTable
    dra_chart: DraChart
    digests: DigestTable
    watch_prices: WatchPrices
    standing_prices: StandingPrices


@cache
def load_catalogue(data: Path = DATA) -> Catalogue:
    """Read the data files below `data`.

    Raises:
        SpecError: a data file is malformed, or cites a source it does not list.
    """
    models = [
        read_data_file(ModelConfig, path) for path in sorted((data / "models").glob("*.yaml"))
    ]
    runtime_files = sorted((data / "runtimes").glob("*.yaml"))
    platform = data / "platform"
    return Catalogue(
        models={model.id: model for model in models},
        runtimes={
            path.stem: read_data_file(Runtime, path, name=path.stem) for path in runtime_files
        },
        instances=read_data_file(InstanceTable, platform / "instances.yaml"),
        offerings=read_data_file(OfferingTable, platform / "offerings.yaml"),
        kubernetes=read_data_file(KubernetesTable, platform / "kubernetes.yaml"),
        dra_chart=read_data_file(DraChart, platform / "neuron-dra-chart.yaml"),
        digests=read_data_file(DigestTable, platform / "digests.yaml"),
        watch_prices=read_data_file(WatchPrices, platform / "watch-prices.yaml"),
        standing_prices=read_data_file(StandingPrices, platform / "standing-prices.yaml"),
    )
