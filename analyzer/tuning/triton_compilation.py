"""Compiles a kernel's codes with Triton, for any architecture, with no GPU; kept by content.

Triton is imported by the function that compiles, in a process of its own where there are several, so that
nothing else of this package needs it.
"""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from analyzer.files import write_file
from analyzer.pipeline.content_digests import digest_code, digest_json
from analyzer.pipeline.entry_store import EntryStore, find_default_folder
from analyzer.text.optional_packages import COMPILING, check_packages
from analyzer.tuning.fact_extraction import Code
from analyzer.worker_pool import run_in_processes

_KERNEL_FILE = Path(__file__).parent / "triton_kernels" / "fused_moe.py"
_PURPOSE = "tuning"
_DIVISIBLE_BY_16 = [["tt.divisibility", 16]]
_ALIGNED = frozenset({"n", "k", "a_stride", "expert_stride", "b_stride", "c_stride"})
_TYPES = {
    "sorted_slots_ptr": "*i32",
    "block_experts_ptr": "*i32",
    "padded_slots_ptr": "*i32",
    **dict.fromkeys(("n", "k", "n_slots", "a_stride", "expert_stride", "b_stride", "c_stride"), "i32"),
}
_ELEMENTS = {"bf16": "bf16", "fp16": "fp16"}
# What of a launch is compiled in and changes next to nothing.
_GROUP, _TOP_K = 16, 8


class CompiledCode(Struct, frozen=True):
    """A code as Triton made it."""

    shared_bytes: int
    cubin: bytes
    error: str = ""  # why there is none, as Triton says it


class _Job(Struct, frozen=True):
    code: Code
    arch: int
    dtype: str


def find_triton_version() -> str:
    """Return Triton's version. Raises ToolError where it is not installed."""
    check_packages("--compile", COMPILING)
    import triton

    return str(triton.__version__)


def compile_codes(codes: Sequence[Code], arch: int, dtype: str, jobs: int) -> Mapping[Code, CompiledCode]:
    """Return what Triton makes of each code, from the cache where it was compiled before.

    Raises ToolError where Triton is not installed.
    """
    version = find_triton_version()
    store = EntryStore(find_default_folder(_PURPOSE), digest_code)
    store.prepare()
    source = hashlib.sha256(_KERNEL_FILE.read_bytes()).hexdigest()
    key_by_code = {code: digest_json([source, version, arch, dtype, code]) for code in codes}
    found: dict[Code, CompiledCode] = {}
    for code, key in key_by_code.items():
        if (compiled := store.find(key, CompiledCode)) is not None:
            found[code] = compiled
    missing = [_Job(code, arch, dtype) for code in codes if code not in found]
    for index, compiled in run_in_processes(_compile, missing, jobs):
        code = missing[index].code
        found[code] = compiled
        store.keep(key_by_code[code], compiled)
    return {code: found[code] for code in codes}


def write_cubins(compiled: Mapping[Code, CompiledCode], folder: Path) -> Mapping[Code, tuple[Path, int]]:
    """Write the cubins of the codes that could be compiled; return file and shared bytes of each."""
    written = {}
    for code, each in compiled.items():
        if each.cubin:
            path = folder / ("x".join(map(str, code)) + ".cubin")
            write_file(path, [each.cubin])
            written[code] = (path, each.shared_bytes)
    return written


def _compile(job: _Job) -> CompiledCode:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from analyzer.tuning.triton_kernels.fused_moe import fused_moe

    rows, columns, depth, n_warps, n_stages = job.code
    constants = {
        "BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": depth,
        "GROUP_SIZE_M": _GROUP, "TOP_K": _TOP_K, "EVEN_K": True,
    }  # fmt: skip
    types = {name: "constexpr" for name in constants} | _TYPES
    types |= {f"{name}_ptr": f"*{_ELEMENTS[job.dtype]}" for name in ("a", "b", "c")}
    signature = {name: types[name] for name in fused_moe.arg_names}
    attributes = {
        (place,): _DIVISIBLE_BY_16
        for place, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name in _ALIGNED
    }
    source = ASTSource(fused_moe, signature=signature, constexprs=constants, attrs=attributes)
    try:
        compiled = triton.compile(
            source,
            target=GPUTarget("cuda", job.arch, 32),
            options={"num_warps": n_warps, "num_stages": n_stages},
        )
    except Exception as error:  # of the compiler, for a tile that it cannot make
        print(f"triton: {job.code}: {type(error).__name__}", file=sys.stderr)
        return CompiledCode(0, b"", str(error)[:200])
    return CompiledCode(int(compiled.metadata.shared), bytes(compiled.asm["cubin"]))
