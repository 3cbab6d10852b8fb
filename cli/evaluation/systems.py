"""What ``ragembed eval retrieval`` measures: searches of a collection or a store, and runs that others made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from ragembed.cli.requests import NamedConfig, embedder_configs
from ragembed.config.presets import PRESETS
from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.indexes.search.fusion import Fusion, Method
from ragembed.indexes.search.search import MODES, Mode
from ragembed.indexes.storage.layout import is_store
from ragembed.indexes.tuning.store_evaluation import Search

_CONFIGURATIONS = (".toml", ".json")
_NUMBERS = ("alpha", "feedback")
_SETTINGS = (*_NUMBERS, "fusion", "preset")


@dataclass(frozen=True, slots=True)
class System:
    """What finds documents for questions, called ``label``.

    It is a ``run`` that is read; or a search of ``store``; or a search of a collection, whose texts ``config`` embeds
    where it is not by words alone.
    """

    label: str
    search: Search | None = None
    config: EmbedderConfig | None = None
    store: Path | None = None
    run: Path | None = None

    @property
    def of_collection(self) -> bool:
        """Whether it searches a collection."""
        return self.run is None and self.store is None

    def about(self) -> dict[str, object]:
        """Return what is searched and how as JSON values, without the configuration."""
        if self.search is None:
            return {"run": str(self.run)}
        fusion = self.search.fusion
        fused = {"method": fusion.method, "alpha": fusion.alpha, "feedback": fusion.feedback}
        return {
            **({} if self.store is None else {"store": str(self.store)}),
            "mode": self.search.mode,
            **({"fusion": fused} if self.search.mode == "hybrid" else {}),
        }


def searches(named: Sequence[NamedConfig], search: Search) -> list[System]:
    """Return the system of each configuration, named with its mode where that is not dense; words alone need none."""
    if search.mode == "lexical":
        return [System(search.mode, search)]
    mode = "" if search.mode == "dense" else f", {search.mode}"
    return [System(f"{name}{mode}", search, config) for name, config in named]


def runs(paths: Sequence[Path]) -> list[System]:
    """Return the system of each run, called as its file."""
    short = [path.name for path in paths]
    distinct = len(set(short)) == len(short)
    return [System(path.name if distinct else str(path), run=path) for path in paths]


def parse_system(spec: str, base: NamedConfig, search: Search, store: Path | None, *, searchable: bool) -> System:
    """Return the system that ``spec`` names: ``NAME`` or ``NAME:SETTING=VALUE,...``.

    NAME is a mode, a preset, a configuration file, a store, or a run file. Settings are ``alpha``, ``fusion`` and
    ``feedback`` of hybrid search, and the ``preset`` of a mode.

    Parameters
    ----------
    spec
        What was given on the command line.
    base, search
        The configuration and the way of searching that the options ask for, and ``spec`` changes.
    store
        The store that modes search, None where they search the collection.
    searchable
        Whether there are questions to search for; where there are none, only runs can be compared.

    Raises
    ------
    ConfigError
        For anything else, and settings of no use.
    """
    name, _, text = spec.partition(":")
    if Path(spec).exists() and name not in (*MODES, *PRESETS):
        name, text = spec, ""
    settings = _settings(spec, text)
    system = _named(spec, name, base, search, store)
    preset = settings.pop("preset", None)
    if preset is not None:
        if name not in MODES or system.config is None:
            raise ConfigError(f"{spec!r}: 'preset' is of use for dense and hybrid search of a collection alone")
        [found] = embedder_configs({"preset": (preset,)}, query_fit=None)
        system = replace(system, config=found.config)
    if settings:
        if system.search is None or system.search.mode != "hybrid":
            raise ConfigError(f"{spec!r}: {', '.join(settings)} is of use for hybrid search alone")
        system = replace(system, search=replace(system.search, fusion=_fusion(spec, system.search.fusion, settings)))
    if system.of_collection and not searchable:
        raise ConfigError(f"{spec!r} needs questions to search for: give a BEIR folder or judged questions, or a run")
    return system


def _named(spec: str, name: str, base: NamedConfig, search: Search, store: Path | None) -> System:
    config = None if store is not None else base.config
    if name in MODES:
        mode: Mode = next(each for each in MODES if each == name)
        return System(spec, replace(search, mode=mode), None if mode == "lexical" else config, store)
    path = Path(name)
    if name in PRESETS or path.suffix in _CONFIGURATIONS:
        if store is not None:
            raise ConfigError(f"{spec!r}: a store has its own settings; compare modes, stores or runs")
        options = {"preset": (name,)} if name in PRESETS else {"config_file": _file(path)}
        [found] = embedder_configs(options, query_fit=None)
        return System(spec, search, found.config)
    if is_store(path):
        return System(spec, search, store=path)
    if path.is_file():
        return System(spec, run=path)
    raise ConfigError(
        f"{spec!r} is none of {', '.join(MODES)}, no preset ({', '.join(PRESETS)}), and no file of a run or of "
        "settings, and no store: expected one of these to compare"
    )


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(f"the configuration {path} is no file")
    return path


def _settings(spec: str, text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    for part in text.split(",") if text else []:
        key, given, value = part.partition("=")
        if key.strip() not in _SETTINGS or not given or key.strip() in settings:
            raise ConfigError(f"{spec!r}: {part!r}: expected each of {', '.join(_SETTINGS)} once, as in alpha=0.8")
        settings[key.strip()] = value.strip()
    return settings


def _fusion(spec: str, fusion: Fusion, settings: Mapping[str, str]) -> Fusion:
    numbers = {}
    for name in _NUMBERS:
        if name in settings:
            try:
                numbers[name] = float(settings[name])
            except ValueError:
                raise ConfigError(f"{spec!r}: {name} is {settings[name]!r}: expected a number") from None
    named = settings.get("fusion", fusion.method)
    method: Method | None = next((each for each in get_args(Method) if each == named), None)
    if method is None:
        raise ConfigError(f"{spec!r}: unknown fusion {named!r}: expected one of {', '.join(get_args(Method))}")
    try:
        return replace(fusion, method=method, **numbers)
    except ConfigError as error:
        raise ConfigError(f"{spec!r}: {error}") from None
