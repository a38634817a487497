"""Compile Triton kernels without a GPU: `python emit.py OUT_DIR NAME:ARCH...`.

Writes `OUT_DIR/sm_<arch>/<name>.cubin`, `.ttir`, `.ttgir`, `.ptx` and `.json` (the metadata that does not
change from run to run).  `traces/build.py` calls this with a Python that has Triton.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from variants import VARIANTS, Variant

DIVISIBLE_BY_16 = [["tt.divisibility", 16]]
METADATA_KEYS = ("name", "num_warps", "num_stages", "num_ctas", "cluster_dims", "shared")


def is_aligned(argument: str, kind: str, variant: Variant) -> bool:
    """Whether the launcher would have found the value to be a multiple of 16."""
    return kind.startswith("*") or argument in variant.aligned


def source_of(variant: Variant) -> ASTSource:
    """The kernel with every argument's type, constant or alignment fixed."""
    fn = getattr(import_module(variant.source), variant.kernel)
    signature = {arg: variant.types.get(arg, "constexpr") for arg in fn.arg_names}
    attrs = {
        (index,): DIVISIBLE_BY_16
        for index, (arg, kind) in enumerate(signature.items())
        if is_aligned(arg, kind, variant)
    }
    return ASTSource(fn, signature=signature, constexprs=variant.constexprs, attrs=attrs)


def stable_metadata(compiled: Any, variant: Variant, arch: int) -> dict[str, Any]:
    """What of Triton's metadata tells about the kernel and is the same in every build."""
    metadata = compiled.metadata._asdict()
    stable = {key: metadata[key] for key in METADATA_KEYS if key in metadata}
    return stable | {
        "target": {"backend": "cuda", "arch": arch, "warp_size": 32},
        "signature": compiled.src.signature,
        "constexprs": variant.constexprs,
    }


def emit(variant: Variant, arch: int, out_dir: Path) -> None:
    """Compile one variant for one architecture and write its levels and metadata."""
    options = {"num_warps": variant.num_warps, "num_stages": variant.num_stages}
    compiled = triton.compile(source_of(variant), target=GPUTarget("cuda", arch, 32), options=options)
    folder = out_dir / f"sm_{arch}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{variant.name}.cubin").write_bytes(compiled.asm["cubin"])
    for level in ("ttir", "ttgir", "ptx"):
        (folder / f"{variant.name}.{level}").write_text(str(compiled.asm[level]))
    metadata = json.dumps(stable_metadata(compiled, variant, arch), indent=2) + "\n"
    (folder / f"{variant.name}.json").write_text(metadata)


def main() -> None:
    """Compile what the command line names."""
    out_dir, *jobs = sys.argv[1:]
    by_job = {f"{variant.name}:{arch}": variant for variant in VARIANTS for arch in variant.archs}
    for job in jobs:
        name, arch = job.split(":")
        print(f"  triton {triton.__version__}: {name} for sm_{arch}", flush=True)
        emit(by_job[job], int(arch), Path(out_dir))


if __name__ == "__main__":
    main()
