"""GPUs with some figures set to something else, and what `sm` says of counted rows on them.

    Edit("dram", (("memory.dram_load_cycles", 0.0),)).apply(gpu)      the GPU without that figure
    answer_edits(case, edits, code)                                   times of a row on all edited GPUs

A figure that a GPU does not have is not edited. Answers are kept by the contents of code and figures.
"""

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
from counted_launches import find_path, load_launch
from kernels.compiling import BUILT
from variant_predictions import Variant, predict_counted

from analyzer.evaluation.case_table import Case
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.schema import HardwareParameter
from analyzer.models.sm import launch_simulation, launch_tail
from analyzer.pipeline.content_digests import digest_json
from analyzer.pipeline.gpu_binding import CountedLaunch

ANSWERS = BUILT / "figures"
Value = float | str | None  # a number, the name of a figure beside it whose value it takes, or none
# Fields of products that take the place of one of the architecture, which its neutral overrides too.
_OF_PRODUCT = {
    "memory.dram_turnaround_factor": "turnaround_factor",
    "memory.dram_efficiency": "streaming_gbps",
    "memory.dram_read_efficiency": "read_gbps",
}
_WATCHED_TABLES = ("memory", "instruction_caches", "issue", "warpgroup_contention")
_SIMULATION = "simulate_ctas"  # of models/sm: programs and parameters to cycles


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A measured launch and what `sm` says of it, in microseconds."""

    suite: str
    gpu: str
    case: str
    measured_us: float
    as_is_us: float
    edited_us: Mapping[str, float]  # by edit; those that the row's GPU does not have are not here


class Edit(msgspec.Struct, frozen=True):
    """Figures and what they are set to."""

    name: str
    values: tuple[tuple[str, Value], ...]

    def apply(self, gpu: Gpu) -> Gpu:
        """Return the GPU with the figures that it has set."""
        for key, value in self.values:
            gpu = _set_figure(gpu, key, value)
        return gpu

    def touches(self, read: Set[str]) -> bool:
        """Return whether a prediction that read these may see it; a product's figures are not watched."""
        return any(
            key in _OF_PRODUCT or key in read or any(one.startswith(f"{key}.") for one in read)
            for key, _ in self.values
        )


def _set_figure(gpu: Gpu, key: str, value: Value) -> Gpu:
    arch = gpu.arch
    assert arch is not None
    table, _, name = key.partition(".")
    if table == "l2":
        return msgspec.structs.replace(gpu, file=_edit_table(gpu.file, table, name, value))
    if key in _OF_PRODUCT and getattr(gpu.file.memory, _OF_PRODUCT[key]) is not None:
        gpu = msgspec.structs.replace(gpu, file=_edit_table(gpu.file, "memory", _OF_PRODUCT[key], None))
    return msgspec.structs.replace(gpu, arch=_edit_table(arch, table, name, value))


def _edit_table(file: Any, table: str, name: str, value: Value) -> Any:
    """Return a file with a figure of a table replaced, or without the table where there is no name."""
    if not name:
        return msgspec.structs.replace(file, **{table: None})
    figures = getattr(file, table)
    old: HardwareParameter | None = None if figures is None else getattr(figures, name)
    if old is None:
        return file
    if isinstance(value, str):
        value = getattr(figures, value).value
    new = None if value is None else msgspec.structs.replace(old, value=value)
    return msgspec.structs.replace(file, **{table: msgspec.structs.replace(figures, **{name: new})})


class Times(msgspec.Struct):
    """What `sm` says of a row on its GPU, as it is and by edit, in microseconds."""

    as_is_us: float
    edited_us: dict[str, float]


def answer_edits(case: Case, edits: Sequence[Edit], code: str) -> Row:
    """Return what `sm` says of a counted row on its GPU, as it is and with each edit of figures that it has.

    code: digest of what predicts.
    """
    gpu = load_gpu(case.gpu)
    path = ANSWERS / f"{digest_json([code, find_path(case).name, [gpu.file, gpu.arch]])}.json"
    kept: dict[str, float] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    here = [edit for edit in edits if _list_values(edit.apply(gpu)) != _list_values(gpu)]
    keys = {edit.name: digest_json(edit.values) for edit in here}
    if missing := [edit for edit in here if keys[edit.name] not in kept]:
        found = answer_on(load_launch(find_path(case)), case, gpu, missing)
        kept[""] = found.as_is_us
        kept |= {keys[name]: time_us for name, time_us in found.edited_us.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_suffix(".partial")
        partial_path.write_bytes(msgspec.json.encode(kept))
        partial_path.rename(path)
    return Row(
        suite=case.suite,
        gpu=gpu.key,
        case=case.name,
        measured_us=case.time_us,
        as_is_us=kept[""],
        edited_us={name: kept[key] for name, key in keys.items()},
    )


def answer_on(counted: CountedLaunch, case: Case, gpu: Gpu, edits: Sequence[Edit]) -> Times:
    """Return what `sm` says of a counted row on a GPU, as it is and with each of the edits.

    An edit of what the row's prediction did not read changes nothing.
    """
    watched, read = _watch(gpu)
    with _remembering_simulations():

        def predict_us(on: Gpu) -> float:
            return predict_counted(counted, case, Variant(on, case.clock_mhz)).predicted_us

        found = Times(predict_us(watched), {})
        for edit in edits:
            touches = edit.touches(read)
            found.edited_us[edit.name] = predict_us(edit.apply(gpu)) if touches else found.as_is_us
    return found


def _watch(gpu: Gpu) -> tuple[Gpu, set[str]]:
    """Return the GPU with tables that note which of their figures are read, and the keys of these."""
    arch, read = gpu.arch, set[str]()
    assert arch is not None
    tables = {
        name: _WatchedTable(getattr(arch, name), name, read)
        for name in _WATCHED_TABLES
        if getattr(arch, name) is not None
    }
    file = msgspec.structs.replace(gpu.file, l2=_WatchedTable(gpu.file.l2, "l2", read))
    return msgspec.structs.replace(gpu, file=file, arch=msgspec.structs.replace(arch, **tables)), read


class _WatchedTable:
    """Stands for a table of figures, and notes which are read."""

    def __init__(self, table: msgspec.Struct, name: str, read: set[str]) -> None:
        self._table, self._name, self._read = table, name, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(f"{self._name}.{name}")
        return getattr(self._table, name)


def _list_values(gpu: Gpu) -> bytes:
    return msgspec.json.encode([gpu.file, gpu.arch])


@contextmanager
def _remembering_simulations() -> Iterator[None]:
    """Let the simulation of an SM, whose answer follows from its arguments alone, repeat what it said before.

    An edit that it does not see then costs next to nothing.
    """
    simulate = getattr(launch_tail, _SIMULATION)
    found: dict[bytes, Any] = {}

    def remember(*arguments: Any, **options: Any) -> Any:
        of_wave = [(one.n_full, one.n_ctas, one.warp_programs) for one in arguments[3:] if one is not None]
        key = hashlib.sha256(pickle.dumps((arguments[:3], of_wave, options))).digest()
        if key not in found:
            found[key] = simulate(*arguments, **options)
        return found[key]

    with (
        patch.object(launch_simulation, _SIMULATION, remember),
        patch.object(launch_tail, _SIMULATION, remember),
    ):
        yield
