"""GPUs with some figures set to something else, and what `sm` says of counted rows on them.

    Edit("dram", (("memory.dram_load_cycles", 0.0),)).apply(gpu)      the GPU without that figure
    answer_edits(case, edits, code)                                   times of a row on all edited GPUs

A figure that a GPU does not have is not edited. Answers are kept by the contents of code and figures.
"""

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
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

ANSWERS = BUILT / "figures"
Value = float | str | None  # a number, the name of a figure beside it whose value it takes, or none
# Fields of products that take the place of one of the architecture, which its neutral overrides too.
_OF_PRODUCT = {
    "memory.dram_turnaround_factor": "turnaround_factor",
    "memory.dram_efficiency": "streaming_gbps",
    "memory.dram_read_efficiency": "read_gbps",
}
_SIMULATION = "estimate_sm_cycles"  # of models/sm: programs and parameters to cycles


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


def answer_edits(case: Case, edits: Sequence[Edit], code: str) -> Row:
    gpu = load_gpu(case.gpu)
    path = ANSWERS / f"{digest_json([code, str(find_path(case)), [gpu.file, gpu.arch]])}.json"
    kept: dict[str, float] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    edited = {"": gpu}
    for edit in edits:
        new = edit.apply(gpu)
        if _list_values(new) != _list_values(gpu):
            edited[edit.name] = new
    keys = {name: digest_json([one.file, one.arch]) for name, one in edited.items()}
    if any(key not in kept for key in keys.values()):
        counted = load_launch(find_path(case))
        with _remembering_simulations():
            for name, one in edited.items():
                if keys[name] not in kept:
                    variant = Variant(one, case.clock_mhz)
                    kept[keys[name]] = predict_counted(counted, case, variant).predicted_us
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_path = path.with_suffix(".partial")
        partial_path.write_bytes(msgspec.json.encode(kept))
        partial_path.rename(path)
    return Row(
        suite=case.suite,
        gpu=gpu.key,
        case=case.name,
        measured_us=case.time_us,
        as_is_us=kept[keys[""]],
        edited_us={name: kept[key] for name, key in keys.items() if name},
    )


def _list_values(gpu: Gpu) -> bytes:
    return msgspec.json.encode([gpu.file, gpu.arch])


@contextmanager
def _remembering_simulations() -> Iterator[None]:
    """Let the simulation of an SM, whose answer follows from its arguments alone, repeat what it said before.

    An edit that it does not see then costs next to nothing.
    """
    simulate = getattr(launch_tail, _SIMULATION)
    found: dict[bytes, Any] = {}

    def remember(*arguments: Any) -> Any:
        key = hashlib.sha256(pickle.dumps(arguments)).digest()
        if key not in found:
            found[key] = simulate(*arguments)
        return found[key]

    with (
        patch.object(launch_simulation, _SIMULATION, remember),
        patch.object(launch_tail, _SIMULATION, remember),
    ):
        yield
