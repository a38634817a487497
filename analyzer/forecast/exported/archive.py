"""Reads `.pt2` archives of torch.export: a ZIP whose `models/*.json` holds the graph. No torch, no pickle.

Only that one entry is read: weights, sample inputs and constants, which may be pickled, are not touched.
Sizes are limited before anything is unpacked, and the JSON is decoded into typed values that ignore what is
not needed. Archives of torch 2.2 to 2.7 keep the same JSON as `serialized_exported_program.json`.

Source of the format: torch/_export/serde/schema.py (schema 5 to 8) as its files show it.
"""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from analyzer.archives import open_zip, read_zip_entry
from analyzer.forecast.exported.program import (
    MOST_CALLS,
    MOST_ELEMENTS,
    ExportedCall,
    ExportedProgram,
    ExportedTensor,
    is_row_major,
)
from analyzer.text.errors import InputError
from analyzer.unpacking import PackedError

_MAX_JSON_BYTES = 256 << 20
_MAX_ENTRIES = 1 << 20
_MAX_RANK = 32
_OLD_NAME = "serialized_exported_program.json"
_HINT = "write it with torch.export.save(torch.export.export(module, example_inputs), 'model.pt2')"
_ATEN = "torch.ops."
# torch's serialized numbers of types
_TYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
}


class _Tensor(Struct):
    dtype: int
    sizes: list[dict[str, Any]]
    strides: list[dict[str, Any]] = []


class _Argument(Struct):
    arg: dict[str, Any]
    name: str = ""


class _Node(Struct):
    target: str
    inputs: list[_Argument]
    outputs: list[dict[str, Any]]


class _Graph(Struct):
    nodes: list[_Node]
    tensor_values: dict[str, _Tensor]


class _Signature(Struct):
    input_specs: list[dict[str, Any]]


class _GraphModule(Struct):
    graph: _Graph
    signature: _Signature


class _Document(Struct):
    graph_module: _GraphModule


def read_exported_program(path: Path) -> ExportedProgram:
    """Return the program of an archive. Raises InputError for what is none, is damaged or too large."""
    content = _read_graph_entry(path)
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise _refuse(path, f"the graph in it cannot be read: {str(error)[:200]}") from None
    graph = document.graph_module.graph
    if len(graph.nodes) > MOST_CALLS:
        raise _refuse(path, f"{len(graph.nodes):,} operators: at most {MOST_CALLS:,} are read")
    try:
        return _make_program(path.stem, document.graph_module)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _refuse(
            path, f"the graph in it is damaged: {type(error).__name__} {str(error)[:100]}"
        ) from None


def _refuse(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: {reason}", hint=_HINT)


def _read_graph_entry(path: Path) -> bytes:
    """Return the JSON of the graph."""
    try:
        with open_zip(path) as archive:
            return read_zip_entry(archive, _find_entry(archive, path), _MAX_JSON_BYTES)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", hint=_HINT) from None
    except (OSError, PackedError) as error:
        raise _refuse(path, str(error)[:200]) from None


def _find_entry(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    entries = archive.infolist()
    if len(entries) > _MAX_ENTRIES:
        raise _refuse(path, f"{len(entries):,} entries: at most {_MAX_ENTRIES:,} are read")
    found = [entry for entry in entries if _is_graph(entry.filename)]
    if len(found) != 1:
        what = "no graph in it" if not found else f"{len(found)} graphs in it"
        raise _refuse(path, what)
    return found[0]


def _is_graph(name: str) -> bool:
    parts = name.split("/")
    is_model = len(parts) >= 2 and parts[-2] == "models" and name.endswith(".json")
    return is_model or parts[-1] == _OLD_NAME


def _make_program(name: str, module: _GraphModule) -> ExportedProgram:
    graph = module.graph
    sizes = _SizeReader()
    tensors = {key: _read_tensor(value, sizes) for key, value in graph.tensor_values.items()}
    parameters, inputs = _read_signature(module.signature, tensors)
    calls = tuple(_read_call(node) for node in graph.nodes if node.target.startswith(_ATEN))
    return ExportedProgram(name, tensors, parameters, inputs, calls, sizes.is_dynamic)


class _SizeReader:
    """Reads sizes, and remembers whether one was symbolic."""

    def __init__(self) -> None:
        self.is_dynamic = False

    def read(self, size: Mapping[str, Any]) -> int:
        """Return a size; of a symbolic one the example's. Raises ValueError for none."""
        value = size.get("as_int")
        if value is None:
            self.is_dynamic = True
            hint = size["as_expr"].get("hint") or {}
            value = hint.get("as_int")
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_ELEMENTS:
            raise ValueError("a size that is not known")
        return value


def _read_tensor(tensor: _Tensor, sizes: _SizeReader) -> ExportedTensor:
    if len(tensor.sizes) > _MAX_RANK:
        raise ValueError("more dimensions than tensors have")
    shape = tuple(sizes.read(size) for size in tensor.sizes)
    strides = tuple(sizes.read(stride) for stride in tensor.strides)
    found = ExportedTensor(shape, _TYPES.get(tensor.dtype, "unknown"), is_row_major(shape, strides))
    if found.elements > MOST_ELEMENTS:
        raise ValueError("a tensor larger than any memory")
    return found


def _read_signature(
    signature: _Signature, tensors: Mapping[str, ExportedTensor]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of weights, and those of all other inputs."""
    parameters, inputs = set(), []
    for spec in signature.input_specs:
        for kind, value in spec.items():
            name = _find_argument_name(value)
            if name not in tensors:
                continue
            if kind == "parameter":
                parameters.add(name)
            else:
                inputs.append(name)
    return frozenset(parameters), tuple(inputs)


def _find_argument_name(value: Any) -> str:
    """Return the tensor's name in `{"arg": {"name": …}}` or `{"arg": {"as_tensor": {"name": …}}}`."""
    argument = value.get("arg") if isinstance(value, dict) else None
    if not isinstance(argument, dict):
        return ""
    inner = argument.get("as_tensor", argument)
    name = inner.get("name", "") if isinstance(inner, dict) else ""
    return name if isinstance(name, str) else ""


def _read_call(node: _Node) -> ExportedCall:
    operands: list[str] = []
    flags: dict[str, bool | int] = {}
    for argument in node.inputs:
        operands += _list_tensors(argument.arg)
        for key in ("as_bool", "as_int"):
            value = argument.arg.get(key)
            if isinstance(value, int):
                flags[argument.name] = value
    outputs = [name for output in node.outputs for name in _list_tensors(output)]
    return ExportedCall(_name_target(node.target), tuple(operands), tuple(outputs), flags)


def _name_target(target: str) -> str:
    """Return `aten.linear` for `torch.ops.aten.linear.default`."""
    return ".".join(target.removeprefix(_ATEN).split(".")[:2])


def _list_tensors(argument: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the tensors of an argument."""
    for key, value in argument.items():
        if key == "as_tensor":
            yield str(value["name"])
        elif key in ("as_tensors", "as_optional_tensors"):
            for each in value:
                inner = each.get("as_tensor", each)
                if isinstance(inner, dict) and "name" in inner:
                    yield str(inner["name"])
        elif key == "as_optional_tensor" and isinstance(value, dict):
            yield from _list_tensors(value)
