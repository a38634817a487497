"""NeuSight: operators cut into tiles, each as fast as the roofline times a learned utilization.

Source: Lee, Phanishayee, Mahajan, "Forecasting GPU Performance for Deep Learning Training and Inference",
ASPLOS 2025. An operator's output falls into tiles (equation 2), the SMs compute them in waves (3), and
latency = latency of a tile · waves (4); a tile takes FLOPs / (roofline · utilization) (1, 5, 6), with
utilization = alpha - beta / waves (7) from an MLP per family (8): batched products, linear, element-wise,
softmax, layer norm. All other operators count as memory-bound, fused ones take the first operator's tiles
and MLP, and collectives follow from the ring's traffic. Tiles are those of the nearest profiled GPU and
shape.

Open in the paper, and chosen here: depth and width (3 hidden layers of 128), the loss (percentage error), a
least utilization where beta / waves exceeds alpha, logarithms of table 3's ratios before they are
standardized (plain ratios learn far worse: 32 % for 22 % on the authors' batched products), inputs cut off
at the range that taught, and SMs and peaks of `hwdb` (the paper gives P4 40 SMs; the chip has 20).
The authors' code sees four of the five inputs and learns by the symmetric percentage error:
`NeuSightForm.CODE`. It learned from FP32 rows timed between CUDA events, with the host's launch in them;
other data types take their own peak and bytes. Intervals are ours: residuals of the rows that taught, wider
by an assumed level on GPUs that taught nothing.
"""

import numpy as np

from analyzer.baselines.neusight.tiled_work import (
    TiledBatch,
    cut_tiles,
    describe_shapes,
    find_neusight_family,
)
from analyzer.baselines.neusight.tiles import choose_tiles
from analyzer.baselines.neusight.utilization import NeuSightForm, predict_work_us
from analyzer.baselines.neusight.weights import NeuSightWeights, load_shipped_neusight
from analyzer.baselines.work import count_work
from analyzer.hardware.gpu import Gpu
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import (
    CollectiveBatch,
    Column,
    ElementwiseBatch,
    OperatorBatch,
    ProductBatch,
    RowwiseBatch,
)
from analyzer.operators.hardware_figures import OperatorHardware, read_operator_hardware
from analyzer.operators.names import DataType, Operator

NAME = "neusight"
_TIMING = "interval"
_UNSEEN_LEVEL = 0.25  # assumed, in log time
_ASSUMED_INTERVAL = (-0.7, 0.7)  # half to twice the time
# Of an NVLink's peak in one direction: 222 of 300 GB/s by all-reduces of 512 MiB among 8 A100 (NCCL 2.27).
_LINK_UTILIZATION = 0.74
_PCIE_GBPS = 32.0  # one direction of 4.0 x16, where a GPU has no NVLink


def predict(batch: OperatorBatch, gpu: Gpu, form: NeuSightForm = NeuSightForm.PAPER) -> OperatorPrediction:
    """Return times of a batch on a GPU. Raises UsageError for an operator of no family at all."""
    hardware = read_operator_hardware(gpu)
    if isinstance(batch, CollectiveBatch):
        time_us = predict_ring_us(batch, _find_link_gbps(gpu), _LINK_UTILIZATION)
        return _make_prediction(
            time_us, "traffic of a ring at A100's link utilization; interval assumed", False
        )
    family = find_neusight_family(batch)
    weights = load_shipped_neusight(family, form) if family else None
    if weights is None or not isinstance(batch, ProductBatch | RowwiseBatch | ElementwiseBatch):
        return _make_prediction(
            predict_memory_bound_us(batch, hardware),
            "bytes at the datasheet's bandwidth; interval assumed",
            False,
        )
    widening = 0.0 if gpu.measured_key in weights.gpus else _UNSEEN_LEVEL
    low, high = weights.log_interval
    basis = f"learned on {weights.n_rows:,} FP32 rows of {', '.join(weights.gpus)} ({weights.dataset})"
    time_us = predict_neusight_us(batch, hardware, weights)
    return _make_prediction(time_us, basis, batch.dtype is DataType.FP32, (low - widening, high + widening))


def predict_neusight_us(batch: TiledBatch, hardware: OperatorHardware, weights: NeuSightWeights) -> Column:
    """Return the latency of each row in microseconds by the weights of its family (1 to 8)."""
    tiles = choose_tiles(weights.tiles, describe_shapes(batch), hardware)
    return predict_work_us(cut_tiles(batch, tiles), hardware, batch.dtype, weights.network)


def predict_memory_bound_us(batch: OperatorBatch, hardware: OperatorHardware) -> Column:
    """Return the latency in microseconds of an operator without weights: its bytes over the bandwidth."""
    return count_work(batch).bytes_moved / (hardware.dram_gbps * 1e3)


def predict_ring_us(batch: CollectiveBatch, link_gbps: float, utilization: float) -> Column:
    """Return the latency in microseconds of all-reduces around a ring, or of a send to a neighbour.

    link_gbps: peak of a GPU's links in one direction. A ring of g GPUs passes 2 · (g - 1) / g of the message
    over each link; the paper measures the utilization on a system at hand and keeps it for the target.
    """
    is_reduce = batch.operator is Operator.ALL_REDUCE
    share = 2.0 * (batch.gpus - 1.0) / batch.gpus if is_reduce else np.ones(len(batch))
    return share * batch.message_bytes / (link_gbps * 1e3 * utilization)


def _find_link_gbps(gpu: Gpu) -> float:
    """Return the peak of a GPU's links in one direction; `hwdb` has NVLink's sum of both."""
    link = gpu.file.link
    if link is None or link.nvlink_gbps is None or link.nvlink_gbps.value == 0.0:
        return _PCIE_GBPS
    return 0.5 * link.nvlink_gbps.value


def _make_prediction(
    time_us: Column, basis: str, in_range: bool, log_interval: tuple[float, float] = _ASSUMED_INTERVAL
) -> OperatorPrediction:
    return OperatorPrediction(
        time_us=time_us,
        low_us=time_us * np.exp(log_interval[0]),
        high_us=time_us * np.exp(log_interval[1]),
        in_range=np.full(len(time_us), in_range),
        basis=basis,
        timing=_TIMING if in_range else "",
    )
