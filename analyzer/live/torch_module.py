"""`from_torch`: the time of a PyTorch module on a GPU that need not be at hand, by torch.export.

Torch is duck-typed and never imported here: whoever has a module has imported it. Of an exported program only
the graph is read: names of operators, arguments, shapes, strides and types.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from analyzer.forecast.exported.program import (
    MOST_CALLS,
    ExportedCall,
    ExportedProgram,
    ExportedTensor,
    is_row_major,
)
from analyzer.pipeline.iteration import forecast_exported
from analyzer.report.iteration_schema import IterationReport
from analyzer.text.errors import UsageError

_TENSOR_KINDS = ("PARAMETER",)
_MAX_NESTING = 8
_HINT = "give an nn.Module with its example inputs, or what torch.export.export returns"


def from_torch(
    module: Any,
    example_inputs: Sequence[object] = (),
    gpu: str = "h100",
    *,
    example_keywords: Mapping[str, object] | None = None,
    training: bool = False,
    dtype: str = "",
    **settings: Any,
) -> IterationReport:
    """Return the time of one forward pass of a module, in `training` also of backward pass and optimizer.

    module: an `nn.Module`, which is exported with its example inputs, or an exported program.
    gpu: name, alias or TOML path. dtype: fp32, fp16 or bf16 in place of the module's own.
    settings: further fields of `IterationOptions`: data_parallel, is_compiled, has_optimizer.
    Raises UsageError for what is neither, or cannot be exported; HardwareError for an unknown GPU.
    """
    exported = module if _is_exported(module) else _export(module, example_inputs, example_keywords)
    program = read_live_program(exported, type(exported if _is_exported(module) else module).__name__)
    return forecast_exported(program, gpu=gpu, is_training=training, dtype=dtype, **settings)


def _is_exported(value: Any) -> bool:
    return hasattr(value, "graph_signature") and hasattr(value, "graph")


def _export(module: Any, inputs: Sequence[object], keywords: Mapping[str, object] | None) -> Any:
    """Return a module's exported program, by the torch that its class comes from."""
    if not any(each.__module__.startswith("torch.nn.") for each in type(module).__mro__):
        raise UsageError(f"{type(module).__name__} is no torch module", hint=_HINT)
    if "torch" not in sys.modules:
        raise UsageError("torch is not imported", hint=_HINT)
    export = import_module("torch.export").export
    try:
        return export(module, tuple(inputs), dict(keywords or {}))
    except Exception as error:  # whatever the module or torch.export raises
        reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UsageError(
            f"torch.export cannot export {type(module).__name__}: {reason[0][:300]}",
            hint="the example inputs are those of forward(); see torch.export's documentation",
        ) from error


def read_live_program(exported: Any, name: str) -> ExportedProgram:
    """Return the plain values of an exported program in memory. Raises UsageError for one too large."""
    nodes = list(exported.graph.nodes)
    if len(nodes) > MOST_CALLS:
        raise UsageError(f"{len(nodes):,} operators: at most {MOST_CALLS:,} are read")
    tensors: dict[str, ExportedTensor] = {}
    sizes = _SizeReader()
    calls, placeholders = [], []
    for node in nodes:
        outputs = _describe_outputs(node, tensors, sizes)
        if node.op == "placeholder":
            placeholders += outputs
        elif node.op == "call_function" and outputs:
            calls.append(_read_call(node, outputs))
    parameters = frozenset(
        str(spec.arg.name)
        for spec in exported.graph_signature.input_specs
        if getattr(spec.kind, "name", "") in _TENSOR_KINDS and str(spec.arg.name) in tensors
    )
    inputs = tuple(name for name in placeholders if name not in parameters)
    return ExportedProgram(name, tensors, parameters, inputs, tuple(calls), sizes.is_dynamic)


class _SizeReader:
    """Reads sizes, and remembers whether one was symbolic."""

    def __init__(self) -> None:
        self.is_dynamic = False

    def read(self, size: Any) -> int:
        """Return a size as a number; of a symbolic one the example's."""
        if isinstance(size, int) and not isinstance(size, bool):
            return size
        self.is_dynamic = True
        hint = getattr(getattr(size, "node", None), "hint", None)
        return hint if isinstance(hint, int) else 1


def _describe_outputs(node: Any, tensors: dict[str, ExportedTensor], sizes: _SizeReader) -> list[str]:
    """Add a node's tensors to `tensors` and return their names; further results are told by number."""
    value: Any = node.meta.get("val") if hasattr(node, "meta") else None
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    names = []
    for number, each in enumerate(values):
        if not (hasattr(each, "shape") and hasattr(each, "dtype")):
            continue
        given = str(node.name) if len(values) == 1 else f"{node.name}:{number}"
        shape = tuple(sizes.read(size) for size in each.shape)
        strides = tuple(sizes.read(stride) for stride in each.stride()) if hasattr(each, "stride") else ()
        dtype = str(each.dtype).removeprefix("torch.")
        tensors[given] = ExportedTensor(shape, dtype, is_row_major(shape, strides))
        names.append(given)
    return names


def _read_call(node: Any, outputs: Sequence[str]) -> ExportedCall:
    """Return the call of a node; taking one of several results is a view of it."""
    target = ".".join(str(node.target).split(".")[:2])
    if target == "<built-in function getitem>":
        source, number = node.args
        return ExportedCall("aten.alias", (f"{source.name}:{number}",), tuple(outputs))
    operands = [name for argument in (*node.args, *node.kwargs.values()) for name in _list_tensors(argument)]
    return ExportedCall(target, tuple(operands), tuple(outputs), _read_flags(node))


def _list_tensors(argument: Any, depth: int = 0) -> Iterator[str]:
    """Yield the names of the nodes in an argument."""
    if hasattr(argument, "op") and hasattr(argument, "name"):
        yield str(argument.name)
    elif isinstance(argument, list | tuple) and depth < _MAX_NESTING:
        for each in argument:
            yield from _list_tensors(each, depth + 1)


def _read_flags(node: Any) -> dict[str, bool | int]:
    """Return the numbers and flags among the arguments, by the names of the operator's schema."""
    found = {str(name): value for name, value in node.kwargs.items() if isinstance(value, int)}
    schema = getattr(node.target, "_schema", None)
    names = [str(argument.name) for argument in schema.arguments] if schema is not None else []
    for name, value in zip(names, node.args, strict=False):
        if isinstance(value, int):
            found[name] = value
    return found
