"""Compile Triton kernels with no GPU: `python compile.py SPECIFICATIONS.json`, with a Python that has Triton.

A specification has `source` (a Python file), `kernel`, `arch`, `constants`, `types`, `aligned`, `num_warps`,
`num_stages` and `out`, the path of the cubin; the metadata goes beside it, in a JSON file of the same stem.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_KEPT_METADATA = ("name", "num_warps", "num_stages", "num_ctas", "cluster_dims", "shared")


def find_kernel(specification: dict[str, Any]) -> Any:
    """Return the kernel of a source file, which is loaded as a module of its own."""
    path = Path(specification["source"])
    module_spec = importlib.util.spec_from_file_location(f"pair_{abs(hash(path))}", path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    return getattr(module, specification["kernel"])


def make_source(specification: dict[str, Any]) -> ASTSource:
    """Return the kernel with the types, constants and alignments that are asked for."""
    kernel = find_kernel(specification)
    types, constants = specification["types"], specification["constants"]
    signature = {
        name: "constexpr"
        if name in constants
        else types.get(name, "*fp16" if name.endswith("_ptr") else "i32")
        for name in kernel.arg_names
    }
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, kind in enumerate(signature.values())
        if specification["aligned"] and (kind == "i32" or kind.startswith("*"))
    }
    return ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)


def compile_kernel(specification: dict[str, Any]) -> None:
    """Compile one kernel; write its cubin and metadata."""
    options = {key: specification[key] for key in ("num_warps", "num_stages")}
    source = make_source(specification)
    compiled = triton.compile(source, target=GPUTarget("cuda", specification["arch"], 32), options=options)
    out = Path(specification["out"])
    out.write_bytes(compiled.asm["cubin"])
    metadata = compiled.metadata._asdict()
    kept = {key: metadata[key] for key in _KEPT_METADATA if key in metadata}
    kept["target"] = {"backend": "cuda", "arch": specification["arch"], "warp_size": 32}
    kept["signature"], kept["constexprs"] = source.signature, specification["constants"]
    out.with_suffix(".json").write_text(json.dumps(kept, indent=2) + "\n")


for entry in json.loads(Path(sys.argv[1]).read_text()):
    compile_kernel(entry)
