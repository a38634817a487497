"""Times of iterations: sums, parallelism and fusion, with a model of operators that counts bytes and products."""

import numpy as np
import pytest

from analyzer.baselines.work import count_work
from analyzer.forecast.training.fusion import group_nodes, list_fused_forward
from analyzer.forecast.training.kernels import StreamKernel
from analyzer.forecast.training.model_description import describe_model
from analyzer.forecast.training.model_graphs import build_graph
from analyzer.forecast.training.pass_kernels import list_forward_pass
from analyzer.forecast.training.pass_shape import PassShape
from analyzer.forecast.training.training_forecast import TrainingRequest, forecast_training
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.models.registry import find_operator_model
from analyzer.operators.batches import CollectiveBatch, ProductBatch
from analyzer.text.errors import UsageError

GPU = load_gpu("a100-40gb-sxm")
GPT2 = describe_model({"model_type": "gpt2", "n_embd": 1280, "n_head": 20, "n_layer": 8, "vocab_size": 50257})


def _count(batch, gpu):
    """1 TFLOP/s and 1 TB/s, added up; transfers 0.1 TB/s."""
    if isinstance(batch, CollectiveBatch):
        time_us = batch.message_bytes * 1e-5
    else:
        work = count_work(batch)
        flops = work.flops if isinstance(batch, ProductBatch) else 0.0
        time_us = flops * 1e-6 + work.bytes_moved * 1e-6
    time_us = np.asarray(time_us, dtype=np.float64)
    return OperatorPrediction(
        time_us, 0.9 * time_us, 1.2 * time_us, np.ones(len(time_us), dtype=bool), "test"
    )


def _forecast(**fields):
    request = TrainingRequest(**{"batch": 4, "sequence": 256, "has_optimizer": False, **fields})
    return forecast_training(GPT2, request, GPU, _count).time


def test_phases_add_up_and_so_do_the_operators():
    time = _forecast(has_optimizer=True)
    assert time.total_us == pytest.approx(time.forward_us + time.backward_us + time.optimizer_us)
    assert sum(each.total_us for each in time.operators) == pytest.approx(time.forward_us + time.backward_us)
    assert time.low_us == pytest.approx(0.9 * time.total_us)
    assert time.high_us == pytest.approx(1.2 * time.total_us)


def test_adam_reads_four_tensors_and_writes_three():
    parameters = build_graph(GPT2, PassShape(1, 1)).parameters
    time = _forecast(has_optimizer=True)
    assert time.optimizer_us == pytest.approx(28.0 * parameters * 1e-6, rel=1e-9)


def test_a_pipeline_with_one_micro_batch_takes_as_long_as_one_gpu_and_its_sends():
    alone, pipelined = _forecast(), _forecast(pipeline_parallel=4)
    send_us = 4 * 256 * 1280 * 4 * 1e-5
    assert pipelined.total_us == pytest.approx(alone.total_us + 6 * send_us)
    assert pipelined.communication_us == pytest.approx(6 * send_us)


def test_more_micro_batches_shrink_the_bubble():
    times = [_forecast(batch=16, pipeline_parallel=4, micro_batches=m).total_us for m in (1, 4, 16)]
    assert times[0] > times[1]
    four = _forecast(batch=16, pipeline_parallel=4, micro_batches=4)
    assert four.bubble_us == pytest.approx(3 * (four.total_us - four.communication_us) / 6.0, rel=0.75)


def test_data_parallelism_hides_what_the_backward_pass_covers():
    replica = _forecast(batch=1)
    parallel = _forecast(batch=4, data_parallel=4)
    parameters = build_graph(GPT2, PassShape(1, 1)).parameters
    reduction_us = parameters * 4 * 1e-5
    assert parallel.forward_us == pytest.approx(replica.forward_us)
    assert 0.0 < parallel.communication_us < reduction_us
    assert parallel.communication_us >= reduction_us - parallel.backward_us


def test_tensor_parallelism_divides_products_and_adds_reductions():
    alone, divided = _forecast(), _forecast(tensor_parallel=4)
    by_name = {each.name: each for each in divided.operators}
    linear = next(each for each in alone.operators if each.name == "linear")
    assert by_name["linear"].total_us < 0.35 * linear.total_us
    assert by_name["communication"].kernels == 8 * 4 + 2  # per layer two forward, two backward; both ends


def test_fusion_makes_one_kernel_of_gelu():
    graph = build_graph(GPT2, PassShape(4, 256))
    groups = group_nodes(graph)
    gelu = [i for i, node in enumerate(graph.nodes) if node.layer == 3 and node.name.startswith("mlp.act")]
    assert {groups[i] for i in gelu} == {gelu[0]}
    size = graph.nodes[gelu[0]].output_bytes
    fused = [kernel for i in gelu for kernel in list_fused_forward(graph)[i]]
    assert fused == [StreamKernel(size, size, graph.nodes[gelu[0]].dtype)]


def test_fusion_saves_traffic_and_keeps_products():
    graph = build_graph(GPT2, PassShape(4, 256))
    eager, fused = list_forward_pass(graph).forward, list_fused_forward(graph)

    def sum_flops(groups):
        return sum(kernel.flops for group in groups for kernel in group)

    assert sum_flops(eager) == sum_flops(fused)
    assert _forecast(is_training=False, is_compiled=True).total_us < _forecast(is_training=False).total_us
    assert _forecast(is_compiled=True).total_us < _forecast().total_us


def test_no_group_waits_for_what_waits_for_it():
    """A group's inputs from outside are older than its first node."""
    graph = build_graph(GPT2, PassShape(2, 64, is_training=True))
    groups = group_nodes(graph)
    for place, group in enumerate(groups):
        if group is not None and group != place:
            assert all(
                source < group or groups[source] == group or graph.nodes[source].kind.value == "view"
                for source in graph.nodes[place].inputs
            )


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({"batch": 6, "data_parallel": 4}, "--batch"),
        ({"pipeline_parallel": 3}, "2, 4, 8"),
        ({"sequence": 1 << 22, "batch": 1 << 20}, "--dp"),
    ],
)
def test_impossible_divisions_say_what_works(fields, hint):
    with pytest.raises(UsageError) as caught:
        _forecast(**fields)
    assert hint in str(caught.value.diagnostic.hint)


def test_kernels_are_timed_without_the_hosts_launch():
    """A tiny product of an interval model takes the gap between kernels, and not the host's 40 us."""
    model = find_operator_model("ours")
    tiny = describe_model({"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 1, "vocab_size": 100})
    found = forecast_training(tiny, TrainingRequest(1, 16, is_training=False), load_gpu("v100-pcie"), model)
    kernels = sum(each.kernels for each in found.time.operators)
    assert found.time.forward_us < 12.0 * kernels
    assert found.time.total_us == pytest.approx(found.time.host_us)  # which then decides
