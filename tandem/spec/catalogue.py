"""Everything known of models, runtimes and the platform, read from the dated data files.

Invariant: a data file that cites no source, or leaves a mode out, is refused at load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from tandem.spec.document import read_document
from tandem.spec.experiment import Mode
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.figure import DataFile, walk_figures
from tandem.spec.model import ModelConfig
from tandem.spec.platform import (
    DigestTable,
    DraChart,
    InstanceTable,
    KubernetesTable,
    OfferingTable,
    StandingPrices,
    WatchPrices,
)
from tandem.spec.record import parse_record
from tandem.spec.runtime import ProgramCompile, Runtime, RuntimeSpelling

DATA = Path(__file__).parent / "data"

R = TypeVar("R", bound=DataFile)


@dataclass(frozen=True, slots=True, kw_only=True)
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
        SpecError: a data file is malformed, cites a source it does not list, or omits a mode.
    """
    models = [_read_data_file(ModelConfig, path) for path in sorted((data / "models").glob("*.yaml"))]
    platform = data / "platform"
    return Catalogue(
        models={model.id: model for model in models},
        runtimes={path.stem: _read_runtime(path) for path in sorted((data / "runtimes").glob("*.yaml"))},
        instances=_read_data_file(InstanceTable, platform / "instances.yaml"),
        offerings=_read_data_file(OfferingTable, platform / "offerings.yaml"),
        kubernetes=_read_data_file(KubernetesTable, platform / "kubernetes.yaml"),
        dra_chart=_read_data_file(DraChart, platform / "neuron-dra-chart.yaml"),
        digests=_read_data_file(DigestTable, platform / "digests.yaml"),
        watch_prices=_read_data_file(WatchPrices, platform / "watch-prices.yaml"),
        standing_prices=_read_data_file(StandingPrices, platform / "standing-prices.yaml"),
    )


def _read_runtime(path: Path) -> Runtime:
    runtime = _read_data_file(Runtime, path, name=path.stem)
    missing = sorted(set(get_args(Mode)) - {support.mode for support in runtime.modes})
    if missing:
        raise SpecError([_build_fault(path, "modes", f"no entry for {', '.join(missing)}", "one entry for every mode")])
    if runtime.spelling and isinstance(runtime.spelling.compile, ProgramCompile):  # a server is told by its own flags
        settings = _list_compile_settings(runtime.spelling, runtime.spelling.compile)
        flagless = sorted(settings - set(runtime.spelling.compile.flags))
        if flagless:
            got, allowed = f"no flag for {', '.join(flagless)}", "one for every setting that the loader may take"
            raise SpecError([_build_fault(path, "spelling.compile.flags", got, allowed)])
    return runtime


def _list_compile_settings(spelling: RuntimeSpelling, program: ProgramCompile) -> set[str]:
    """Return every Neuron setting that can reach the compiler, where a program of its own must be told it."""
    return {
        *program.loader_declared,
        *program.loader_constants,
        program.window_setting,
        program.sampling_setting,
        *(f"{program.sampling_setting}.{name}" for name in spelling.greedy_sampling),
        *spelling.constant_neuron_config,
        *spelling.tuning_defaults,
        *(setting for settings in spelling.speculation_neuron_config.values() for setting in settings),
        *(name for name in spelling.tuning_keys if name not in spelling.tuning_flags),
        *([spelling.async_key] if spelling.async_key else []),
    }


def _read_data_file(record: type[R], path: Path, **fixed_values: str) -> R:
    value = parse_record(record, read_document(path, f"{path.parent.name}/{path.name}"), **fixed_values)
    allowed = f"a key of sources: {', '.join(sorted(value.sources))}"
    orphans = [(place, figure.source) for place, figure in walk_figures(value) if figure.source not in value.sources]
    if orphans:
        raise SpecError(_build_fault(path, place, f"the source {key!r}", allowed) for place, key in orphans)
    return value


def _build_fault(path: Path, key_path: str, got: str, allowed: str) -> SpecFault:
    return SpecFault(f"{path.parent.name}/{path.name}", key_path, got, allowed, "complete the data file")
