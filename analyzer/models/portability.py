"""Portability: which GPUs can run a kernel, and on which a prediction makes sense."""

from collections.abc import Sequence

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import strip_arch_suffix
from analyzer.ir.module import Kernel
from analyzer.ir.scheduling import SchedClass

# Units without a counterpart on other GPUs: a kernel built on them would be another kernel there.
_IRREPLACEABLE_UNITS = frozenset(
    {
        SchedClass.MMA_WARPGROUP,
        SchedClass.MMA_TENSOR_CORE,
        SchedClass.MMA_FP8,
        SchedClass.MMA_FP4,
        SchedClass.TENSOR_MEMORY_LOAD,
        SchedClass.TENSOR_MEMORY_STORE,
        SchedClass.TENSOR_CORE_COPY,
        SchedClass.TENSOR_CORE_CONTROL,
        SchedClass.BULK_COPY,
        SchedClass.CLUSTER_BARRIER,
        SchedClass.RAY,
    }
)


def is_native(kernel: Kernel, gpu: Gpu) -> bool:
    """Return whether a compiler writes just this code for the GPU."""
    return strip_arch_suffix(kernel.arch) in (gpu.file.arch, gpu.code[0])


def find_best_kernel_indices(kernels: Sequence[Kernel], gpu: Gpu) -> list[int]:
    """Return the indices of the kernels that the driver would choose for a GPU.

    Those of the first architecture of `Arch.code` that there is; all if none of them runs.
    """
    return find_best_arch_indices([kernel.arch for kernel in kernels], gpu)


def find_best_arch_indices(archs: Sequence[str], gpu: Gpu) -> list[int]:
    """Return the same of kernels given by their architectures."""
    plain = [strip_arch_suffix(arch) for arch in archs]
    best = next((arch for arch in (gpu.file.arch, *gpu.code) if arch in plain), None)
    return [place for place, arch in enumerate(plain) if best in (None, arch)]


def find_unsupported_opcodes(kernel: Kernel, gpu: Gpu) -> tuple[str, ...]:
    """Return the kernel's opcodes for which the GPU has no unit; empty if a prediction makes sense."""
    if gpu.arch is None:
        return ()
    missing = _IRREPLACEABLE_UNITS.intersection(gpu.arch.unsupported)
    if not missing:
        return ()
    opcodes = kernel.form_table.opcodes
    used = dict.fromkeys(kernel.opcode_ids.tolist())
    names = (opcodes[number].name for number in used if opcodes[number].sched_class in missing)
    return tuple(dict.fromkeys(names))
