"""A kernel and its launch made ready for abstract execution: constant banks, shape, compiled code."""

from contextlib import suppress

from msgspec.structs import replace

from analyzer.execution.binding.image_builder import build_constant_image
from analyzer.execution.lowering.kernel_compiler import compile_kernel
from analyzer.execution.machine.cta_batch import LaunchShape
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import LoopForest
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.module import Kernel, KernelResources
from analyzer.text.errors import HardwareError, UsageError

_MAX_SHARED_BYTES = 228 << 10  # of a CTA on any GPU


def prepare_launch(cfg: Cfg, loop_forest: LoopForest, launch: Launch) -> PreparedLaunch:
    """Build what execution of a launch of the graph's kernel begins with.

    Raises HardwareError where the architecture is not known, UsageError where grid or block are not known or
    arguments do not fit.
    """
    if launch.grid is None or launch.block is None:
        raise UsageError("grid and block of the launch are not known", hint="give --grid and --block")
    kernel = cfg.kernel
    arch = load_arch(kernel.arch)
    image = build_constant_image(kernel, launch, arch)
    start_bytes = 0 if arch.limits.shared_start_bytes is None else int(arch.limits.shared_start_bytes.value)
    shape = LaunchShape(
        grid=launch.grid,
        block=launch.block,
        cluster=launch.cluster or kernel.cluster or Dim3(1),
        shared_bytes=start_bytes + _bound_shared_bytes(kernel.resources, launch),
        reserved_shared_bytes=start_bytes,
    )
    compiled = compile_kernel(
        cfg, loop_forest, knows_memory=image.has_contents, knows_tensors=bool(image.tensors)
    )
    return PreparedLaunch(compiled, image, shape)


def _bound_shared_bytes(resources: KernelResources, launch: Launch) -> int:
    """Return the shared memory of a CTA, the most that any GPU has where the launch does not say."""
    if resources.shared_bytes is None or launch.dynamic_shared_bytes is None:
        return _MAX_SHARED_BYTES
    return resources.shared_bytes + launch.dynamic_shared_bytes


def without_assumed_pointers(prepared: PreparedLaunch, launch: Launch) -> PreparedLaunch:
    """Return the launch with unknown words in place of arguments that were only assumed to be pointers."""
    kernel = prepared.compiled.cfg.kernel
    image = build_constant_image(kernel, launch, load_arch(kernel.arch), assumes_pointers=False)
    note = "8-byte arguments of which nothing is said are unknown: as pointers they would bound a loop"
    return replace(prepared, image=replace(image, assumptions=(*image.assumptions, note)))


def check_arguments(kernel: Kernel, launch: Launch) -> None:
    """Raise UsageError for arguments that do not fit the kernel, also where nothing will be executed."""
    with suppress(HardwareError):
        build_constant_image(kernel, launch, load_arch(kernel.arch))
