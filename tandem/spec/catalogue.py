"""Everything known of models, runtimes and the platform, read from the dated data files.

Invariant: a data file that cites no source, or leaves a mode out, is refused at load.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from tandem.spec.document import YamlDocument, read_document
from tandem.spec.experiment import Mode
from tandem.spec.faults import SpecError, SpecFault
from tandem.spec.figure import FigureSource, find_uncited_figures
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
from tandem.spec.record import SpecRecord, parse_record
from tandem.spec.runtime import ProgramCompile, Runtime, RuntimeSpelling

DATA = Path(__file__).parent / "data"

R = TypeVar("R", bound=SpecRecord)


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
    runtimes = [_read_runtime(path) for path in sorted((data / "runtimes").glob("*.yaml"))]
    platform = data / "platform"
    return Catalogue(
        models={model.id: model for model in models},
        runtimes={runtime.name: runtime for runtime in runtimes},
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
    flagless = (
        sorted(_list_compile_settings(runtime.spelling) - _list_flag_settings(runtime.spelling))
        if runtime.spelling
        else []
    )
    if flagless:
        raise SpecError([
            _build_fault(
                path, "spelling.compile.flags", f"no flag for {', '.join(flagless)}",
                "one for every setting that a server's loader may be told, or an artifact is compiled without it",
            )
        ])  # fmt: skip
    return runtime


def _list_compile_settings(spelling: RuntimeSpelling) -> set[str]:
    """Return every Neuron setting that can reach the compiler, where a program of its own must be told it."""
    compile_spelling = spelling.compile
    if not isinstance(compile_spelling, ProgramCompile):
        return set()  # a server is told by its own flags
    sampling = {f"{compile_spelling.sampling_setting}.{name}" for name in spelling.greedy_sampling}
    by_mode = {setting for settings in spelling.speculation_neuron_config.values() for setting in settings}
    return {
        *compile_spelling.loader_declared,
        *compile_spelling.loader_constants,
        compile_spelling.window_setting,
        compile_spelling.sampling_setting,
        *sampling,
        *spelling.constant_neuron_config,
        *spelling.tuning_defaults,
        *by_mode,
        *(name for name in spelling.tuning_keys if name not in spelling.tuning_flags),
        *([spelling.async_key] if spelling.async_key else []),
    }


def _list_flag_settings(spelling: RuntimeSpelling) -> set[str]:
    return set(spelling.compile.flags) if isinstance(spelling.compile, ProgramCompile) else set()


def _read_data_file(record: type[R], path: Path, **fixed_values: str) -> R:
    document: YamlDocument = read_document(path, f"{path.parent.name}/{path.name}")
    value = parse_record(record, document, **fixed_values)
    sources: dict[str, FigureSource] = value.sources  # type: ignore[attr-defined]  # every data record has the table
    faults = [
        _build_fault(path, key_path, f"the source {key!r}", f"a key of sources: {', '.join(sorted(sources))}")
        for key_path, key in find_uncited_figures(value, sources)
    ]
    if faults:
        raise SpecError(faults)
    return value


def _build_fault(path: Path, key_path: str, got: str, allowed_text: str) -> SpecFault:
    return SpecFault(
        file=f"{path.parent.name}/{path.name}",
        path=key_path,
        got=got,
        allowed=allowed_text,
        change="complete the data file",
    )
