"""What SynPerf reads of a GPU (its table II): operations per cycle and SM of each pipe, and bandwidths."""

from msgspec import Struct

from analyzer.operators.hardware_figures import OperatorHardware
from analyzer.operators.names import DataType
from analyzer.operators.task_demand import Pipe

_XU_OPS_PER_CYCLE = 16.0  # of an SM, from sm_70 on; the paper's table II
_SHARED_BYTES_PER_CYCLE = 128.0  # likewise


class PipeFigures(Struct, frozen=True):
    """Throughputs of a GPU's pipes, for one data type of the tensor cores."""

    architecture: str  # whose code is native: "sm_90"
    has_warpgroup_mma: bool
    has_asynchronous_mma: bool
    sm_count: int
    clock_mhz: float
    tensor_ops_per_cycle: float  # per SM; a multiply and an add are two; CUDA cores' where there is no unit
    fma_ops_per_cycle: float  # instructions of one lane, per SM
    xu_ops_per_cycle: float  # per SM
    dram_gbps: float
    l2_gbps: float
    shared_bytes_per_cycle: float  # per SM
    shared_bytes_per_sm: float

    def find_throughput(self, pipe: Pipe) -> float:
        """Return a math pipe's operations per cycle and SM."""
        throughputs = {
            Pipe.TENSOR: self.tensor_ops_per_cycle,
            Pipe.FMA: self.fma_ops_per_cycle,
            Pipe.XU: self.xu_ops_per_cycle,
        }
        return throughputs[pipe]


def read_pipe_figures(hardware: OperatorHardware, dtype: DataType) -> PipeFigures:
    """Return the figures of a GPU that SynPerf's features divide by, at boost clock."""
    cycles_per_us = hardware.sm_count * hardware.boost_mhz
    return PipeFigures(
        architecture=hardware.architecture,
        has_warpgroup_mma=hardware.has_warpgroup_mma,
        has_asynchronous_mma=hardware.has_asynchronous_mma,
        sm_count=int(hardware.sm_count),
        clock_mhz=hardware.boost_mhz,
        tensor_ops_per_cycle=hardware.find_peak_tflops(dtype) * 1e6 / cycles_per_us,
        fma_ops_per_cycle=hardware.fp32_tflops * 1e6 / (2.0 * cycles_per_us),
        xu_ops_per_cycle=_XU_OPS_PER_CYCLE,
        dram_gbps=hardware.dram_gbps,
        l2_gbps=hardware.l2_gbps,
        shared_bytes_per_cycle=_SHARED_BYTES_PER_CYCLE,
        shared_bytes_per_sm=hardware.shared_bytes_per_sm,
    )
