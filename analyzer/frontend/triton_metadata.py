"""Metadata that Triton writes beside a kernel as NAME.json.

Names and types of the arguments come from a signature in it, which Triton's own cache does not have, else
from the intermediate code in `NAME.ttir` (see `triton_ir`). Positions of arguments are those of the compiled
kernel: what was folded into the code is left out, and so are the pointers to scratch memory that Triton
appends, null at launch.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.files import read_file
from analyzer.frontend.triton_ir import IrSignature, read_ir_signature
from analyzer.ir.launch import MAX_CLUSTER_CTAS, MAX_DYNAMIC_SHARED_BYTES, Dim3
from analyzer.ir.module import FoldedArgument, Kernel, KernelResources, Parameter, ParameterDeclaration
from analyzer.ir.scheduling import WARP_SIZE

_MAX_BYTES = 4 << 20
_MAX_WARPS = 32
_MAX_TENSOR_RANK = 5
_MIN_TMA_ARCH = 90
_POINTER_BYTES = 8
_CONSTANT_TYPE = "constexpr"
_TENSOR_MAP_BYTES = 128
_TENSOR_MAP_ALIGN_BYTES = 64
_SCALAR_TYPE_BYTES = {
    "i1": 1, "i8": 1, "u8": 1, "u1": 1,
    "i16": 2, "u16": 2, "fp16": 2, "bf16": 2,
    "i32": 4, "u32": 4, "fp32": 4, "f32": 4,
    "i64": 8, "u64": 8, "fp64": 8,
}  # fmt: skip
_TENSOR_DESCRIPTOR = re.compile(r"tensordesc<[^\[\]<>]*\[([0-9, ]*)\].*>")
_N_HIDDEN_PARAMETERS = 2
_SCRATCH_KEYS = ("global_scratch_size", "profile_scratch_size")  # one for each pointer of the Triton at hand
_DETAILS = ("hash", "num_warps", "num_stages", "num_ctas", "shared", "triton_version")
IR_SUFFIXES = (".ttir", ".ttgir", ".source")
_ARCH_NUMBER = re.compile(r"sm_(\d{1,4})(?!\d)")


class TritonMetadata(Struct, frozen=True):
    """Launch and signature of a Triton kernel."""

    name: str
    n_warps: int  # per CTA
    shared_bytes: int  # dynamic shared memory of the launch
    n_ctas: int = 1  # per cluster
    signature: tuple[tuple[str, str], ...] | None = None  # (name, type) as in the source
    constants: Mapping[str, str] = {}  # values of constant arguments, by name
    ir: IrSignature | None = None  # of the intermediate code, read where there is no signature
    n_hidden: int = _N_HIDDEN_PARAMETERS  # pointers at the end
    hash: str = ""
    details: Mapping[str, str | int] = {}  # for people


def read_triton_metadata(path: Path) -> TritonMetadata | None:
    """Read the metadata of a file, None if it is something else."""
    try:
        content: object = json.loads(read_file(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    name, n_warps, shared = (content.get(key) for key in ("name", "num_warps", "shared"))
    if not isinstance(name, str) or type(n_warps) is not int or type(shared) is not int:
        return None
    if not 0 < n_warps <= _MAX_WARPS or not 0 <= shared <= MAX_DYNAMIC_SHARED_BYTES:
        return None
    n_ctas = content.get("num_ctas")
    signature = _parse_signature(content.get("signature"))
    return TritonMetadata(
        name,
        n_warps,
        shared,
        n_ctas if type(n_ctas) is int and 0 < n_ctas <= MAX_CLUSTER_CTAS else 1,
        signature,
        _parse_constants(content.get("constexprs")),
        None if signature is not None else _read_ir(path, name),
        sum(key in content for key in _SCRATCH_KEYS) if "hash" in content else _N_HIDDEN_PARAMETERS,
        str(content.get("hash", "")),
        {key: content[key] for key in _DETAILS if isinstance(content.get(key), str | int)},
    )


def add_triton_metadata(kernel: Kernel, metadata: TritonMetadata) -> Kernel:
    """Return the kernel with its launch and names of parameters; what the binary says has priority."""
    types = build_parameter_declarations(metadata, kernel.arch)
    parameters, signature = kernel.parameters, None
    if types is None and parameters is not None:
        parameters = _hide_last(parameters, metadata.n_hidden)
    if types is not None and parameters is None:
        signature = types
    elif types is not None and parameters is not None:
        parameters = _name_parameters(parameters, types)
    cluster = Dim3(metadata.n_ctas) if kernel.cluster is None and metadata.n_ctas > 1 else kernel.cluster
    return replace(
        kernel,
        resources=_add_launch_resources(kernel.resources, metadata),
        parameters=parameters,
        signature=signature,
        cluster=cluster,
        folded_arguments=_list_folded(metadata, kernel.arch),
        triton_hash=metadata.hash,
    )


def build_parameter_declarations(
    metadata: TritonMetadata, arch: str
) -> tuple[ParameterDeclaration, ...] | None:
    """Return the compiled signature without constants, None if a type is not known."""
    types: list[ParameterDeclaration] = []
    for name, type_name, divisibility in _list_arguments(metadata):
        found = list(_declare_parameters(name, type_name, arch))
        if not found:
            return None
        types += [replace(each, divisibility=divisibility) for each in found]
    if metadata.signature is None and metadata.ir is None:
        return None
    hidden = ParameterDeclaration(
        name="", type_name="*i8", size_bytes=8, alignment_bytes=8, is_pointer=True, is_hidden=True
    )
    return (*types, *[hidden] * metadata.n_hidden)


def _list_arguments(metadata: TritonMetadata) -> Iterator[tuple[str, str, int]]:
    """Yield (name, type, divisibility) of each argument that is no constant."""
    if metadata.signature is not None:
        yield from ((name, kind, 1) for name, kind in metadata.signature if kind != _CONSTANT_TYPE)
    elif metadata.ir is not None:
        yield from ((each.name, each.type_name, each.divisibility) for each in metadata.ir.parameters)


def _list_folded(metadata: TritonMetadata, arch: str) -> tuple[FoldedArgument, ...]:
    """Return the arguments that were constant when the kernel was compiled."""
    if metadata.signature is None:
        return () if metadata.ir is None else metadata.ir.folded
    folded, n_before = [], 0
    for name, kind in metadata.signature:
        if kind == _CONSTANT_TYPE:
            folded.append(FoldedArgument(name, metadata.constants.get(name, ""), n_before))
        n_before += len(list(_declare_parameters(name, kind, arch)))
    return tuple(folded)


def _hide_last(parameters: tuple[Parameter, ...], count: int) -> tuple[Parameter, ...]:
    """Mark the pointers at the end as added by Triton, if that many are there."""
    start = len(parameters) - count
    if start < 0 or any(each.size_bytes != _POINTER_BYTES for each in parameters[start:]):
        return parameters
    return (*parameters[:start], *(replace(each, is_hidden=True) for each in parameters[start:]))


def _declare_parameters(name: str, type_name: str, arch: str) -> Iterator[ParameterDeclaration]:
    """Yield the parameters that one argument is compiled to; none for a type that is not known."""
    if descriptor := _TENSOR_DESCRIPTOR.fullmatch(type_name):
        yield from _declare_tensor_descriptor(name, descriptor[1], arch)
    elif type_name.startswith("*"):
        yield ParameterDeclaration(
            name=name, type_name=type_name, size_bytes=8, alignment_bytes=8, is_pointer=True
        )
    elif type_name in ("nvTmaDesc", "tensormap"):
        yield _declare_tensor_map(name)
    elif size := _SCALAR_TYPE_BYTES.get(type_name):
        yield ParameterDeclaration(name=name, type_name=type_name, size_bytes=size, alignment_bytes=size)


def _declare_tensor_descriptor(name: str, shape: str, arch: str) -> Iterator[ParameterDeclaration]:
    """Yield a tensor map, then the shape and the strides; none before sm_90, which has no tensor maps."""
    number = _ARCH_NUMBER.match(arch)
    rank = len(shape.split(","))
    if number is None or int(number[1]) < _MIN_TMA_ARCH or not 1 <= rank <= _MAX_TENSOR_RANK:
        return
    yield _declare_tensor_map(name)
    for axis in range(rank):
        yield ParameterDeclaration(
            name=f"{name}.shape.{axis}", type_name="i32", size_bytes=4, alignment_bytes=4
        )
    for axis in range(rank):
        yield ParameterDeclaration(
            name=f"{name}.stride.{axis}", type_name="i64", size_bytes=8, alignment_bytes=8
        )


def _declare_tensor_map(name: str) -> ParameterDeclaration:
    return ParameterDeclaration(
        name=name,
        type_name="tensormap",
        size_bytes=_TENSOR_MAP_BYTES,
        alignment_bytes=_TENSOR_MAP_ALIGN_BYTES,
    )


def _parse_signature(content: object) -> tuple[tuple[str, str], ...] | None:
    if not isinstance(content, Mapping):
        return None
    pairs = tuple((name, kind) for name, kind in content.items() if isinstance(name, str))
    return pairs if all(isinstance(kind, str) for _, kind in pairs) else None


def _parse_constants(content: object) -> Mapping[str, str]:
    if not isinstance(content, Mapping):
        return {}
    return {name: str(value) for name, value in content.items() if isinstance(name, str)}


def _read_ir(path: Path, name: str) -> IrSignature | None:
    """Read the signature in the intermediate code beside the metadata; None if it has no such kernel."""
    for suffix in IR_SUFFIXES:
        found = read_ir_signature(path.with_suffix(suffix))
        if found is not None and found.name == name:
            return found
    return None


def _name_parameters(
    parameters: tuple[Parameter, ...], types: tuple[ParameterDeclaration, ...]
) -> tuple[Parameter, ...]:
    """Return the binary's parameters with the metadata's names, if the two agree on the sizes."""
    n_hidden = sum(kind.is_hidden for kind in types)
    for n_missing in range(n_hidden + 1):
        fitting = types[: len(types) - n_missing]
        if [t.size_bytes for t in fitting] == [p.size_bytes for p in parameters]:
            return tuple(
                replace(
                    parameter,
                    name=kind.name,
                    type_name=kind.type_name,
                    is_pointer=kind.is_pointer,
                    is_hidden=kind.is_hidden,
                    divisibility=kind.divisibility,
                )
                for parameter, kind in zip(parameters, fitting, strict=True)
            )
    return parameters


def _add_launch_resources(resources: KernelResources, metadata: TritonMetadata) -> KernelResources:
    resources = replace(resources, dynamic_shared_bytes=metadata.shared_bytes)
    if resources.has_exact_block_threads:
        return resources
    return replace(resources, block_threads=WARP_SIZE * metadata.n_warps, has_exact_block_threads=True)
