"""Compile Triton kernels for sm_90 without a GPU; run by an interpreter that has Triton.

The job, on standard input, is JSON: `folder` to write `KEY.cubin` into, `version` of Triton, `sources`
(folders of the modules `tkernels` and `tsweep`), and `variants`: key to kernel, signature, constants, warps
and stages.
"""

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    job = json.load(sys.stdin)
    sys.path[:0] = job["sources"]
    triton = importlib.import_module("triton")
    if triton.__version__ != job["version"]:
        sys.exit(f"Triton {triton.__version__} is not {job['version']}")
    kernels = {**vars(importlib.import_module("tkernels")), **vars(importlib.import_module("tsweep"))}
    for key, variant in job["variants"].items():
        compiled = compile_variant(triton, kernels[variant["kernel"]], variant)
        path = Path(job["folder"]) / f"{key}.cubin"
        path.with_suffix(".partial").write_bytes(compiled)
        path.with_suffix(".partial").rename(path)


def compile_variant(triton, kernel, variant) -> bytes:  # type: ignore[no-untyped-def]
    """Return the cubin of one variant."""
    backends = importlib.import_module("triton.backends.compiler")
    compiler = importlib.import_module("triton.compiler")
    names = kernel.arg_names
    types = {name: kind for name, kind, _ in variant["sig"]}
    constants = variant["constexprs"]
    source = compiler.ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (names.index(name),): [["tt.divisibility", 16]]
            for name, _, is_divisible in variant["sig"]
            if is_divisible
        },
    )
    options = {"num_warps": variant["num_warps"], "num_stages": variant["num_stages"]}
    target = backends.GPUTarget("cuda", 90, 32)
    cubin: bytes = triton.compile(source, target=target, options=options).asm["cubin"]
    return cubin


if __name__ == "__main__":
    main()
