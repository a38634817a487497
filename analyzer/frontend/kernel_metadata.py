"""What lies beside a kernel's code, as a cubin states it or `cuobjdump -elf` prints it."""

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.ir.launch import MAX_BLOCK_THREADS, MAX_CLUSTER_CTAS, Dim3
from analyzer.ir.module import ConstantBank, Kernel, Module, Parameter

_POINTER_BYTES = 8


class KernelMetadata(Struct, kw_only=True):
    """Facts of one kernel; None where nothing is said."""

    parameters: dict[int, Parameter] = field(default_factory=dict)
    parameter_base: int | None = None
    has_parameter_info: bool = False
    constant_banks: list[ConstantBank] = field(default_factory=list)
    cluster: Dim3 | None = None
    required_block_threads: int | None = None

    def add_parameter(self, ordinal: int, offset: int, size_bytes: int, space: int) -> None:
        """EIATTR_KPARAM_INFO; a space other than 0 is that which a pointer points to."""
        self.has_parameter_info = True
        is_long = size_bytes == _POINTER_BYTES
        self.parameters[ordinal] = Parameter(
            ordinal=ordinal,
            offset=offset,
            size_bytes=size_bytes,
            is_pointer=True if is_long and space else None if is_long else False,
        )

    def set_required_block(self, x: int, y: int, z: int) -> None:
        """EIATTR_REQNTID."""
        threads = x * y * z
        self.required_block_threads = threads if 0 < threads <= MAX_BLOCK_THREADS else None

    def set_cluster(self, x: int, y: int, z: int) -> None:
        """EIATTR_CTA_PER_CLUSTER."""
        self.cluster = Dim3(x, y, z) if 0 < x * y * z <= MAX_CLUSTER_CTAS else None

    def build_parameter_list(self) -> tuple[Parameter, ...] | None:
        """Parameters by ordinal; None where some are missing or lie over each other."""
        if not self.has_parameter_info:
            return None
        found = tuple(self.parameters[ordinal] for ordinal in sorted(self.parameters))
        if [p.ordinal for p in found] != list(range(len(found))):
            return None
        end = 0
        for parameter in found:
            if parameter.offset < end or parameter.size_bytes < 1:
                return None
            end = parameter.offset + parameter.size_bytes
        return found


def add_kernel_metadata(module: Module, find: Callable[[Kernel], KernelMetadata | None]) -> Module:
    """The module with what was found of its kernels."""
    return replace(module, kernels=tuple(_apply_metadata(kernel, find(kernel)) for kernel in module.kernels))


def _apply_metadata(kernel: Kernel, metadata: KernelMetadata | None) -> Kernel:
    if metadata is None:
        return kernel
    resources = kernel.resources
    if metadata.required_block_threads is not None:
        resources = replace(
            resources, block_threads=metadata.required_block_threads, has_exact_block_threads=True
        )
    return replace(
        kernel,
        resources=resources,
        parameters=metadata.build_parameter_list(),
        parameter_base=metadata.parameter_base,
        constant_banks=tuple(sorted(metadata.constant_banks, key=lambda bank: bank.number)),
        cluster=metadata.cluster,
    )
