"""`from_triton`: the analysis of a kernel that Triton has just compiled, without a GPU or files.

What Triton's `CompiledKernel` holds (`asm`, `metadata`, `src`) is laid out as Triton's cache lays it out, in
a temporary folder, and read from there like any cache.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from analyzer.ir.launch import Pointer
from analyzer.live.triton_arguments import (
    KernelArguments,
    describe_descriptor,
    find_tensor_bytes,
    flatten_arguments,
    is_tensor,
    is_tensor_descriptor,
    read_kernel_arguments,
)
from analyzer.pipeline import Launch, Options, Program, analyze
from analyzer.pipeline.input_index import load_for_gpus
from analyzer.report.analyze_schema import Report
from analyzer.text.errors import UsageError

Grid = int | Sequence[int] | Callable[[dict[str, object]], Sequence[int]]

_LEVELS = ("source", "ttir", "ttgir", "llir", "ptx", "cubin")
_SCALAR_TYPES = (str, int, float, bool)
_MAX_NAME_CHARACTERS = 100


def from_triton(
    kernel: Any,
    grid: Grid | None = None,
    args: Sequence[object] | Mapping[str, object] = (),
    gpu: str | Sequence[str] | None = None,
    *,
    options: Options | None = None,
) -> Report:
    """Analyze a kernel as Triton compiled it: what `kernel[grid](*args)` would do on a GPU.

    kernel: `CompiledKernel` of Triton 3.2 or later, which `triton.compile`, `kernel.warmup` and a launch
        return; only `asm`, `metadata`, `src` and `name` of it are read.
    grid: CTAs along x, y and z, or a function of the arguments, as Triton takes it.
    args: of the Python function, in order or by name; those that were constant when it was compiled may be
        left out. Tensors of torch, arrays, numbers and None; of a tensor on a GPU only the size is taken.
    gpu: name, alias or TOML path; None for the typical one of the architecture that it was compiled for.
    Raises UsageError for an argument that the kernel does not have or was not compiled for, InputError,
    HardwareError or ToolError as `analyze` does.
    """
    program = load_triton_kernel(kernel, gpu, options)
    arguments = read_kernel_arguments(getattr(kernel, "src", None))
    bound = arguments.bind(args)
    known = {parameter.name for one in program.kernels for parameter in one.kernel.parameters or ()}
    values: dict[str | int, object] = {
        name: _make_value(value)
        for name, value in flatten_arguments(bound)
        if name in known or not known - {""} or "." not in name
    }
    launch = Launch(grid=_find_grid(kernel, grid, arguments, bound), arguments=values)
    return analyze(program, gpu, launch=launch, options=options)


def load_triton_kernel(
    kernel: Any, gpu: str | Sequence[str] | None = None, options: Options | None = None
) -> Program:
    """Read a `CompiledKernel`: its cubin, or the PTX for the GPU where it has none. Raises UsageError."""
    asm = getattr(kernel, "asm", None)
    levels = {level: asm[level] for level in _LEVELS if level in asm} if asm is not None else {}
    if "cubin" not in levels and "ptx" not in levels:
        raise UsageError(
            f"{type(kernel).__name__} holds neither a cubin nor PTX",
            hint="give what kernel.warmup(...), kernel[grid](...) or triton.compile(...) returns",
        )
    content = _list_metadata(kernel)
    name = str(content.get("name") or getattr(kernel, "name", "")) or "kernel"
    stem = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    with TemporaryDirectory(prefix="warplens-") as folder:
        base = Path(folder, stem[:_MAX_NAME_CHARACTERS])
        for level, text in levels.items():
            data = text if isinstance(text, bytes) else str(text).encode("utf-8", "replace")
            base.with_suffix(f".{level}").write_bytes(data)
        base.with_suffix(".json").write_text(json.dumps(content))
        path = base.with_suffix(".cubin" if "cubin" in levels else ".ptx")
        (program,) = load_for_gpus(str(path), gpu, options or Options())
    label = f"{name} (Triton)"
    return Program(replace(program.module, path=label))


def _list_metadata(kernel: Any) -> dict[str, Any]:
    """Return the metadata as Triton writes it beside a kernel, with the signature where it is plain."""
    metadata: Any = getattr(kernel, "metadata", None)
    raw = metadata._asdict() if hasattr(metadata, "_asdict") else metadata
    if not isinstance(raw, Mapping):
        raise UsageError(f"{type(kernel).__name__} has no metadata", hint="give Triton's CompiledKernel")
    content: dict[str, Any] = {
        str(key): value for key, value in raw.items() if isinstance(value, _SCALAR_TYPES)
    }
    source = getattr(kernel, "src", None)
    arguments = read_kernel_arguments(source)
    signature = getattr(source, "signature", None)
    if arguments.names and isinstance(signature, Mapping) and set(signature) == set(arguments.names):
        kinds = {name: signature[name] for name in arguments.names}
        if all(isinstance(kind, str) for kind in kinds.values()):
            constants = arguments.constants
            content["signature"] = {k: "constexpr" if k in constants else kind for k, kind in kinds.items()}
            content["constexprs"] = {
                name: value for name, value in constants.items() if isinstance(value, _SCALAR_TYPES)
            }
    return content


def _make_value(value: object) -> object:
    """Return an argument as `Launch` takes it; contents of memory only where the host can read them."""
    if is_tensor_descriptor(value):
        return describe_descriptor(value)
    if not is_tensor(value):
        return value
    tensor: Any = value
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device == "cpu" and not hasattr(tensor, "__cuda_array_interface__"):
        try:
            array = tensor.detach().numpy()
            return array if array.size else Pointer()
        except (AttributeError, TypeError, RuntimeError, ImportError):
            pass  # bfloat16, which numpy lacks: its size is left
    return Pointer(find_tensor_bytes(tensor) or None)


def _find_grid(
    kernel: Any, grid: Grid | None, arguments: KernelArguments, bound: Mapping[str, object]
) -> tuple[int, ...] | None:
    """Return the grid in CTAs; Triton's counts clusters along x."""
    if grid is None:
        return None
    found = grid({**arguments.constants, **bound}) if callable(grid) else grid
    sizes = (found,) if isinstance(found, int) else tuple(found)
    n_ctas = _list_metadata(kernel).get("num_ctas") or 1
    return (sizes[0] * n_ctas, *sizes[1:])
