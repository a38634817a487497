"""Metadata of a kernel beside its code, as stored in a cubin and printed by `cuobjdump -elf`."""

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from analyzer.frontend.linking import CodeRelocation
from analyzer.ir.launch import MAX_BLOCK_THREADS, MAX_CLUSTER_CTAS, Dim3
from analyzer.ir.module import ConstantBank, Kernel, Module, Parameter

_POINTER_BYTES = 8


class KernelMetadata(Struct, kw_only=True):
    """Metadata of one kernel under construction; None if not stated."""

    parameters: dict[int, Parameter] = field(default_factory=dict)  # by ordinal
    parameter_base: int | None = None  # offset of the first parameter in constant bank 0
    has_parameter_info: bool = False  # True if the source lists parameters, perhaps none
    constant_banks: list[ConstantBank] = field(default_factory=list)
    cluster: Dim3 | None = None
    required_block_threads: int | None = None
    code_relocations: list[CodeRelocation] = field(default_factory=list)

    def add_parameter(self, ordinal: int, offset: int, size_bytes: int, space: int) -> None:
        """Add a parameter (EIATTR_KPARAM_INFO).

        space: state space that a pointer points to; 0 if unknown or no pointer.
        """
        self.has_parameter_info = True
        is_long = size_bytes == _POINTER_BYTES
        self.parameters[ordinal] = Parameter(
            ordinal=ordinal,
            offset=offset,
            size_bytes=size_bytes,
            is_pointer=True if is_long and space else None if is_long else False,
        )

    def set_required_block(self, x: int, y: int, z: int) -> None:
        """Set the block size that the kernel requires (EIATTR_REQNTID); an impossible one is ignored."""
        threads = x * y * z
        self.required_block_threads = threads if 0 < threads <= MAX_BLOCK_THREADS else None

    def set_cluster(self, x: int, y: int, z: int) -> None:
        """Set the cluster size (EIATTR_CTA_PER_CLUSTER); an impossible one is ignored."""
        self.cluster = Dim3(x, y, z) if 0 < x * y * z <= MAX_CLUSTER_CTAS else None

    def build_parameter_list(self) -> tuple[Parameter, ...] | None:
        """Return the parameters by ordinal, None if some are missing or overlap."""
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
    """Return the module with the metadata that `find` returns for its kernels."""
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
