"""Launches in a trace of the PyTorch profiler: the kernel events of Chrome's JSON.

An event has its duration in microseconds and, among its arguments, grid, block, registers per thread and
bytes of shared memory; operations and bytes are not there. Other events are skipped.

    {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "saxpy", "dur": 95.8, "args": {
        "grid": [4096, 1, 1], "block": [256, 1, 1], "registers per thread": 12, "shared memory": 0}}]}
"""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from analyzer.evaluation.transfer_rows import MAX_REGISTERS, MAX_SHARED_BYTES, TransferRow
from analyzer.ir.launch import Dim3, Launch, check_launch
from analyzer.text.errors import InputError, UsageError
from analyzer.text.json_spans import JsonPath, find_json_spans, split_decode_error, split_validation_error
from analyzer.text.source import locate

_KERNEL_CATEGORY = "kernel"
_EVENTS_KEY = "traceEvents"
_HINT = "export it by torch.profiler.profile(...).export_chrome_trace(PATH)"


class _KernelArguments(Struct, frozen=True):
    """What CUPTI tells of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: Annotated[int, Meta(ge=0, le=MAX_REGISTERS)] | None = field(
        name="registers per thread", default=None
    )
    shared_bytes: Annotated[float, Meta(ge=0, le=MAX_SHARED_BYTES)] = field(name="shared memory", default=0)


class _Event(Struct, frozen=True):
    """The fields of an event that decide whether it is a kernel; their types depend on its kind."""

    cat: Any = ""
    name: Any = ""
    dur: Any = None
    args: Any = None


class _Device(Struct, frozen=True):
    """What a trace tells of a GPU."""

    major: Any = field(name="computeMajor", default=None)
    minor: Any = field(name="computeMinor", default=None)


class _Trace(Struct, frozen=True):
    """A trace; `events` is required, so that other JSON is told apart."""

    events: list[_Event] = field(name=_EVENTS_KEY)
    devices: list[_Device] = field(name="deviceProperties", default_factory=list)


def read_pytorch_trace(path: Path, data: bytes) -> tuple[tuple[TransferRow, ...], tuple[str, ...]]:
    """Return the kernels of a trace in its order, and the architectures of its GPUs (`sm_80`).

    Raises InputError that shows any fault.
    """
    is_list = data.lstrip()[:1] == b"["
    trace = _decode_trace(path, data, is_list=is_list)
    root: JsonPath = () if is_list else (_EVENTS_KEY,)
    kernels = [
        (index, event)
        for index, event in enumerate(trace.events)
        if str(event.cat).lower() == _KERNEL_CATEGORY and event.dur is not None
    ]
    rows = tuple(
        _read_kernel(path, data, (*root, index), number, event)
        for number, (index, event) in enumerate(kernels, start=1)
    )
    archs = dict.fromkeys(f"sm_{device.major}{device.minor}" for device in trace.devices if device.major)
    return rows, tuple(archs)


def _decode_trace(path: Path, data: bytes, *, is_list: bool) -> _Trace:
    try:
        if is_list:
            return _Trace(msgspec.json.decode(data, type=list[_Event]))
        return msgspec.json.decode(data, type=_Trace)
    except msgspec.ValidationError as error:
        words, json_path = split_validation_error(str(error))
        raise _make_error(path, data, json_path, f"no trace of PyTorch: {words}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _make_syntax_error(path, data, error) from None


def _check_syntax(path: Path, data: bytes) -> None:
    """Raise InputError for text that is not JSON as Python reads it."""
    try:
        msgspec.json.decode(data)
        json.loads(data)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise _make_syntax_error(path, data, error) from None


def _make_syntax_error(path: Path, data: bytes, error: Exception) -> InputError:
    reason, offset = split_decode_error(str(error))
    last = max(0, len(data.rstrip()) - 1)
    location = locate(str(path), data, last if offset is None else min(offset, last))
    return InputError(f"not JSON: {reason}", location=location, hint="the file may be cut off")


def _read_kernel(path: Path, data: bytes, place: JsonPath, number: int, event: _Event) -> TransferRow:
    try:
        arguments = msgspec.convert(event.args, _KernelArguments, strict=False)
        time_us = msgspec.convert(event.dur, float, strict=False)
        if not 0 <= time_us < float("inf"):  # 0: of old traces, whose times are whole
            raise msgspec.ValidationError(f"a duration of {time_us} us - at `$.dur`")
        grid, block = Dim3(*arguments.grid), Dim3(*arguments.block)
        check_launch(Launch(grid=grid, block=block))
    except msgspec.ValidationError as error:
        words, _ = split_validation_error(str(error))
        raise _make_error(path, data, place, f"kernel {number}: {words}") from None
    except UsageError as error:
        raise _make_error(path, data, place, f"kernel {number}: {error}") from None
    return TransferRow(
        line=number,
        fields=(),
        kernel=str(event.name),
        grid=grid,
        block=block,
        registers=arguments.registers,
        shared_bytes=int(arguments.shared_bytes),
        flops=None,
        moved_bytes=None,
        time_us=time_us,
    ).with_own_fields()


def _make_error(path: Path, data: bytes, place: JsonPath, message: str) -> InputError:
    """Return an error that shows a value. Raises the one of text that is not JSON behind that value."""
    _check_syntax(path, data)
    span = find_json_spans(data).find_value(place)
    location = locate(str(path), data, span.offset, length=span.length)
    return InputError(message, location=location, hint=_HINT)
