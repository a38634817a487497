"""A kernel and its launch, ready to be executed."""

from msgspec import Struct

from analyzer.execution.binding.constant_image import ConstantImage
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.machine.cta_batch import LaunchShape


class PreparedLaunch(Struct, frozen=True, eq=False):
    """Input of the execution of a launch."""

    compiled: CompiledKernel
    image: ConstantImage
    shape: LaunchShape
