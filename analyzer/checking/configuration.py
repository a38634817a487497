"""The configuration of `check`: a table of pyproject.toml or of warplens.toml, with the place of each fault.

    [tool.warplens.check]           # in warplens.toml: [check]
    inputs = ["build/*.cubin"]
    gpus = ["h100"]
    cycles = "5%"                   # a threshold: any metric that `METRICS` names
    max_registers = 168             # a budget: max_ or min_ and any such metric
    forbid = ["shared-bank-conflict"]

    [[tool.warplens.check.kernels]]
    match = "fmha*"
    cycles = "2%"

The file is the one that is named, else the first one with such a table in the current folder or above.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import tomli
from msgspec import Struct
from msgspec.structs import replace

from analyzer.checking.limits import (
    DEFAULT_LIMITS,
    Budget,
    BudgetSide,
    LimitEntry,
    Limits,
    LimitTable,
    Threshold,
)
from analyzer.checking.toml_places import TomlPath, TomlPlaces, find_toml_places
from analyzer.comparison.kernel_metrics import METRICS, Preference
from analyzer.files import read_file
from analyzer.hardware.gpu_selection import find_gpus
from analyzer.report.check_schema import Level
from analyzer.text.errors import HardwareError, UsageError
from analyzer.text.source import Location

DEFAULT_BASELINE = "warplens-baseline.json"
DEFAULT_BASELINE_FOLDER = "warplens-baseline"
IGNORED = "ignore"

_OWN_FILE, _PROJECT_FILE = "warplens.toml", "pyproject.toml"
_MAX_FILE_BYTES = 1 << 20
_ERROR_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
_SHARE = re.compile(r"\+?\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*%")
_MAX_AMOUNT = 1e18
_SHARE_METRIC = "occupancy"  # its values are shares
# Of the other figures neither more nor less is worse.
_HELD_METRICS = tuple(name for name, metric in METRICS.items() if metric.preference is not Preference.NONE)
_BUDGET_KEY = re.compile(r"(max|min)_(\w+)")

_T = TypeVar("_T")


class CheckConfig(Struct, frozen=True, kw_only=True):
    """What `check` is told; paths are relative to `folder`."""

    path: Path | None = None  # of the file, None where there is none
    folder: Path = Path()
    inputs: tuple[str, ...] = ()  # paths and globs
    gpus: tuple[str, ...] = ()  # the typical one of each architecture where empty
    launch: Path | None = None
    baseline: Path | None = None
    holds_baseline: bool = True  # False: budgets alone
    model: str = ""  # the default one where empty
    assumes_launch: bool = True
    per_input: bool = False  # a baseline file for each input
    new_kernels: Level | None = Level.NOTE  # None: not reported
    removed_kernels: Level | None = Level.NOTE
    limits: LimitTable = LimitTable(DEFAULT_LIMITS)

    @property
    def baseline_path(self) -> Path:
        """File of the baseline, or folder of the files of all inputs."""
        if self.baseline is not None:
            return self.baseline
        return self.folder / (DEFAULT_BASELINE_FOLDER if self.per_input else DEFAULT_BASELINE)


def find_config(path: Path | None = None, folder: Path | None = None) -> CheckConfig:
    """Return the configuration of a file, else of the nearest one from `folder` upwards, else the default.

    Raises UsageError: the file cannot be read, is no TOML, or has a key or a value that is none.
    """
    if path is not None:
        return _read_config(path, is_named=True) or CheckConfig(path=path, folder=path.parent)
    start = Path.cwd() if folder is None else folder.resolve()
    for each in (start, *start.parents):
        for name in (_OWN_FILE, _PROJECT_FILE):
            candidate = Path(os.path.relpath(each / name))
            if candidate.is_file() and (found := _read_config(candidate, is_named=False)) is not None:
                return found
    return CheckConfig()


def read_limits(values: Mapping[str, object]) -> Limits:
    """Return limits by the keys of the configuration, such as `{"cycles": "2%", "max_registers": 168}`.

    Raises UsageError.
    """
    reader = _ConfigReader(Path(), TomlPlaces("", "", {}, {}))
    plain = {
        key: [*value] if isinstance(value, tuple | set | frozenset) else value
        for key, value in values.items()
    }
    try:
        return reader.read_limits(plain, (), ())
    except UsageError as error:
        raise UsageError(str(error), hint=error.diagnostic.hint) from None


def _read_config(path: Path, *, is_named: bool) -> CheckConfig | None:
    """Return the configuration in a file; None for a file that was not named and has no such table."""
    try:
        text = read_file(path, _MAX_FILE_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path, or no UTF-8
        reason = "this is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else None
        raise UsageError(f"{path}: {reason or getattr(error, 'strerror', None) or error}") from None
    if not is_named and "check" not in text:
        return None
    text = text.replace("\r\n", "\n")
    content = _parse_toml(path, text)
    has_tool = path.name != _OWN_FILE and ("tool" in content or path.name == _PROJECT_FILE)
    where: TomlPath = ("tool", "warplens", "check") if has_tool else ("check",)
    places = find_toml_places(str(path), text)
    if not has_tool:
        for key in content:
            if key != "check":
                raise _make_unknown_error(places, (key,), key, ("check",), "table")
    table: object = content
    for name in where:
        table = table.get(str(name)) if isinstance(table, Mapping) else None
    if table is None:
        return None
    return _ConfigReader(path, places).read(table, where)


def _parse_toml(path: Path, text: str) -> dict[str, object]:
    try:
        return tomli.loads(text)
    except RecursionError:
        raise UsageError(f"{path}: values are nested too deeply") from None
    except tomli.TOMLDecodeError as error:
        match = _ERROR_PLACE.search(str(error))
        lines = text.split("\n")
        line, column = (int(match[1]), int(match[2])) if match else (len(lines), 1)
        shown = lines[line - 1] if line <= len(lines) else ""
        reason = str(error).partition(" (at")[0]
        location = Location(str(path), line, column, shown)
        raise UsageError(f"not TOML: {reason}", location=location) from None
    except ValueError as error:  # such as a number of 10,000 digits
        raise UsageError(f"{path}: {error}") from None


def _make_unknown_error(
    places: TomlPlaces, path: TomlPath, name: str, known: tuple[str, ...], what: str
) -> UsageError:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return UsageError(f"unknown {what} {name!r:.80}", location=places.locate_key(path), hint=hint)


class _ConfigReader:
    """Reader of one table, which knows the place of each key and value."""

    __slots__ = ("_path", "_places")

    def __init__(self, path: Path, places: TomlPlaces) -> None:
        self._path, self._places = path, places

    def read(self, table: object, where: TomlPath) -> CheckConfig:
        """Return the configuration. Raises UsageError."""
        fields = self._read_table(table, where)
        readers: Mapping[str, Callable[[object, TomlPath], object]] = {
            "inputs": self._read_texts,
            "gpus": self._read_gpus,
            "launch": self._read_path,
            "baseline": self._read_baseline,
            "model": self._read_model,
            "assume_launch": self._read_flag,
            "per_input": self._read_flag,
            "new_kernels": self._read_policy,
            "removed_kernels": self._read_policy,
            "kernels": self._read_kernels,
        }
        values = {key: read(fields[key], (*where, key)) for key, read in readers.items() if key in fields}
        common = self.read_limits(fields, where, tuple(readers))
        baseline = values.pop("baseline", None)
        entries = values.pop("kernels", ())
        renamed = {"assume_launch": "assumes_launch"}
        config = CheckConfig(
            path=self._path,
            folder=self._path.parent,
            baseline=baseline if isinstance(baseline, Path) else None,
            holds_baseline=baseline is not False,
            limits=LimitTable(DEFAULT_LIMITS.override(common)),
        )
        config = replace(config, **{renamed.get(key, key): value for key, value in values.items()})
        if not isinstance(entries, tuple):
            return config
        return replace(config, limits=replace(config.limits, entries=entries))

    def _read_table(self, value: object, path: TomlPath) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self._fail(path, "must be a table")
        return value

    def read_limits(self, fields: Mapping[str, object], where: TomlPath, others: tuple[str, ...]) -> Limits:
        """Return the limits among the keys of a table; one that is no limit and not among `others` fails."""
        thresholds: dict[str, Threshold | None] = {}
        budgets: dict[tuple[str, BudgetSide], Budget | None] = {}
        forbidden: tuple[str, ...] | None = None
        for key, value in fields.items():
            path, match = (*where, key), _BUDGET_KEY.fullmatch(key)
            if key in others:
                continue
            if key == "forbid":
                forbidden = self._read_rules(value, path)
            elif key in _HELD_METRICS:
                thresholds[key] = self._read_threshold(value, path)
            elif match and match[2] in METRICS:
                side = BudgetSide(match[1])
                budgets[match[2], side] = self._read_budget(value, path, match[2], side)
            else:
                raise self._fail_unknown(path, key, (*others, "forbid"))
        return Limits(thresholds=thresholds, budgets=budgets, forbidden=forbidden)

    def _read_kernels(self, value: object, where: TomlPath) -> tuple[LimitEntry, ...]:
        if not isinstance(value, list):
            raise self._fail(where, "must be an array of tables, each a [[...kernels]]")
        entries = []
        for index, item in enumerate(value):
            path = (*where, index)
            fields = self._read_table(item, path)
            if "match" not in fields:
                raise UsageError(
                    "no `match` in this table",
                    location=self._places.locate_key(path),
                    hint='write match = "GLOB" of kernel names',
                )
            glob = self._read_text(fields["match"], (*path, "match"))
            entries.append(LimitEntry(glob, self.read_limits(fields, path, ("match",))))
        return tuple(entries)

    def _read_threshold(self, value: object, path: TomlPath) -> Threshold | None:
        if value == IGNORED:
            return None
        if isinstance(value, str) and (match := _SHARE.fullmatch(value.strip())):
            share = self._parse_number(match[1], path)
            return Threshold(share / 100, True)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return Threshold(self._check_amount(value, path), False)
        raise self._fail(path, 'must be a share such as "5%", an amount such as 8, or "ignore"')

    def _read_budget(self, value: object, path: TomlPath, metric: str, side: BudgetSide) -> Budget | None:
        if value == IGNORED:
            return None
        is_share = metric == _SHARE_METRIC
        if is_share and isinstance(value, str) and (match := _SHARE.fullmatch(value.strip())):
            value = self._parse_number(match[1], path) / 100
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._fail(path, f'must be a number{" or a share" if is_share else ""}, or "ignore"')
        if is_share and value > 1:
            raise self._fail(path, f'must be a share from 0 to 1; for {value:g} percent write "{value:g}%"')
        return Budget(metric, side, self._check_amount(value, path))

    def _parse_number(self, text: str, path: TomlPath) -> float:
        try:
            return self._check_amount(float(text), path)
        except ValueError:
            raise self._fail(path, f"{text!r:.40} is not a number") from None

    def _check_amount(self, value: int | float, path: TomlPath) -> float:
        if not 0 <= value <= _MAX_AMOUNT:  # also false for NaN
            raise self._fail(path, "must be a finite number that is not negative")
        return float(value)

    def _read_rules(self, value: object, path: TomlPath) -> tuple[str, ...]:
        return tuple(
            self._find_rule(name, (*path, index) if isinstance(value, list) else path)
            for index, name in enumerate(self._read_texts(value, path))
        )

    def _find_rule(self, name: str, path: TomlPath) -> str:
        """Return the rule of a name: also of its plural, or of words of it that no other rule has."""
        from analyzer.advice.registry import list_rule_names

        rules = list_rule_names()
        wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
        if wanted in rules:
            return wanted
        found = [rule for rule in rules if f"-{wanted.removesuffix('s')}-" in f"-{rule}-"]
        if len(found) == 1:
            return found[0]
        import difflib

        near = found or difflib.get_close_matches(wanted, rules, n=2, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"one of: {', '.join(rules)}"
        raise UsageError(
            f"no rule of advice is called {name!r:.80}", location=self._places.locate_value(path), hint=hint
        )

    def _read_gpus(self, value: object, path: TomlPath) -> tuple[str, ...]:
        """Return the names of GPUs; a hardware file is relative to the folder of the configuration."""
        names = []
        for index, name in enumerate(self._read_texts(value, path)):
            full = str(self._path.parent / name) if name.endswith(".toml") else name
            try:
                find_gpus(full)
            except HardwareError as error:
                if error.diagnostic.location is not None:  # in the file that was named
                    raise
                where = self._places.locate_value((*path, index) if isinstance(value, list) else path)
                raise UsageError(str(error), location=where, hint=error.diagnostic.hint) from None
            names.append(full)
        return tuple(names)

    def _read_model(self, value: object, path: TomlPath) -> str:
        from analyzer.models.registry import list_models

        return self._read_choice(value, path, list_models(), "model")

    def _read_policy(self, value: object, path: TomlPath) -> Level | None:
        name = self._read_choice(value, path, (IGNORED, *Level), "policy")
        return None if name == IGNORED else Level(name)

    def _read_choice(self, value: object, path: TomlPath, known: tuple[str, ...], what: str) -> str:
        name = self._read_text(value, path)
        if name not in known:
            error = _make_unknown_error(self._places, path, name, known, what)
            raise UsageError(
                str(error), location=self._places.locate_value(path), hint=f"one of: {', '.join(known)}"
            )
        return name

    def _read_baseline(self, value: object, path: TomlPath) -> Path | bool:
        if value is False:
            return False
        if not isinstance(value, str) or not value:
            raise self._fail(path, "must be a path, or false for budgets alone")
        return self._path.parent / value

    def _read_path(self, value: object, path: TomlPath) -> Path:
        return self._path.parent / self._read_text(value, path)

    def _read_flag(self, value: object, path: TomlPath) -> bool:
        if not isinstance(value, bool):
            raise self._fail(path, "must be true or false")
        return value

    def _read_text(self, value: object, path: TomlPath) -> str:
        if not isinstance(value, str) or not value:
            raise self._fail(path, "must be a text")
        return value

    def _read_texts(self, value: object, path: TomlPath) -> tuple[str, ...]:
        """Return the texts of an array; one text stands for an array of it."""
        if isinstance(value, str):
            return (self._read_text(value, path),)
        if not isinstance(value, list):
            raise self._fail(path, "must be an array of texts")
        return tuple(self._read_text(item, (*path, index)) for index, item in enumerate(value))

    def _fail_unknown(self, path: TomlPath, key: str, settings: tuple[str, ...]) -> UsageError:
        import difflib

        budgets = (f"{side}_{metric}" for metric in METRICS for side in BudgetSide)
        near = difflib.get_close_matches(key, (*settings, *_HELD_METRICS, *budgets), n=1, cutoff=0.5)
        if near:
            hint = f"did you mean {near[0]}?"
        else:
            metrics = ", ".join(_HELD_METRICS)
            hint = f"settings: {', '.join(settings)}; thresholds, and budgets after max_ or min_: {metrics}"
        return UsageError(f"unknown key {key!r:.80}", location=self._places.locate_key(path), hint=hint)

    def _fail(self, path: TomlPath, reason: str) -> UsageError:
        names = [name for name in path if isinstance(name, str)]
        return UsageError(f"{names[-1]} {reason}", location=self._places.locate_value(path))
