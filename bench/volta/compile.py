"""Compile bench/volta/kernels.cu for sm_70, which nvcc 13 no longer does.

    python bench/volta/compile.py NVRTC CUBIN

NVRTC: path of libnvrtc.so.12 as the package nvidia-cuda-nvrtc-cu12 has it. What cuobjdump 12 prints of the
cubin (`cuobjdump -sass CUBIN`) is shipped as traces/volta/sm_70/kernels.sass.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.compilers import Nvrtc

if __name__ == "__main__":
    library, cubin = map(Path, sys.argv[1:])
    source = (Path(__file__).parent / "kernels.cu").read_text(encoding="utf-8")
    cubin.write_bytes(Nvrtc(library).compile_cubin(source, ["--gpu-architecture=sm_70"]))
