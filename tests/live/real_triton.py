"""Compiles a kernel with the Triton at hand, calls its own hooks without a GPU, and prints what came of it as JSON."""

import json
import sys

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel

import analyzer


@triton.jit
def scale(x, out, n, factor, B: tl.constexpr):
    """Multiply n numbers."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


class Tensor:
    """A tensor of 1,000 floats on a GPU."""

    dtype = "torch.float32"

    def data_ptr(self) -> int:
        """Return an address that 32 divides."""
        return 0x7F0000000020

    def element_size(self) -> int:
        """Return the bytes of a float."""
        return 4

    def numel(self) -> int:
        """Return the number of floats."""
        return 1000


def main(path: str) -> None:
    """Record three launches, two of them equal, to a file."""
    signature = {"x": "*fp32", "out": "*fp32", "n": "i32", "factor": "fp32", "B": "constexpr"}
    source = ASTSource(scale, signature, {(4,): 256})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    kernel.function = 1
    CompiledKernel._init_handles = lambda self: None  # which needs a GPU
    tensor = Tensor()
    seen: list[str] = []
    knobs.runtime.launch_enter_hook.add(
        lambda metadata: seen.append(metadata.data["name"] if hasattr(metadata, "data") else "")
    )
    launch_metadata = CompiledKernel.launch_metadata
    with analyzer.watch_triton(path) as watch:
        for n in (1000, 1000, 900):
            found = kernel.launch_metadata((4,), 0, tensor, tensor, n, 2.0, 256)
            knobs.runtime.launch_enter_hook(found)
        knobs.runtime.launch_enter_hook(object())
    report = analyzer.from_triton(
        kernel, lambda meta: (meta["n"] // meta["B"] + 1,), (tensor, tensor, 1000, 2.0)
    )
    (entry,) = report.kernels
    answer = {
        "version": triton.__version__,
        "hash": kernel.hash,
        "seen": (watch.n_launches, watch.n_distinct, watch.n_lost),
        "others": seen,
        "undone": CompiledKernel.launch_metadata is launch_metadata
        and len(knobs.runtime.launch_enter_hook.calls) == 1,
        "grid": entry.launch.grid,
        "arguments": entry.launch.arguments,
        "imports": [name for name in ("torch", "sklearn") if name in sys.modules],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
