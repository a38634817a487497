"""Transfers between GPUs: the frameworks' own kernel by hand, NCCL against its rows, links, growth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.forecast.collective_times import find_group_link, time_transfer
from analyzer.forecast.deployment import Framework
from analyzer.forecast.operator_calls import CollectiveKind
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.serving_figures import load_serving_figures
from analyzer.ir.scheduling import Basis
from analyzer.models.operators.ours import predict
from analyzer.operators.batches import CollectiveBatch
from analyzer.operators.names import DataType, Operator

_MIB = 1 << 20
_FIGURES = load_serving_figures().transfer


def time_message(gpu, message_bytes, gpus, kind=CollectiveKind.ALL_REDUCE, **options):
    """Return the time of one message."""
    return time_transfer(kind, message_bytes, gpus, find_group_link(load_gpu(gpu), **options))


def test_small_messages_are_the_frameworks_own_kernel():
    rate = _FIGURES.small_share.value * 300e3  # bytes per microsecond, A100
    two_shots = time_message("a100-80gb-sxm", _MIB, 4)
    assert two_shots.us == pytest.approx(_FIGURES.small_group_us.value + 1.5 * _MIB / rate)
    one_shot = time_message("a100-80gb-sxm", _MIB // 4, 4)
    assert one_shot.us == pytest.approx(_FIGURES.small_group_us.value + 3 * _MIB / 4 / rate)
    pair = time_message("a100-80gb-sxm", 4 * _MIB, 2)
    assert pair.us == pytest.approx(_FIGURES.small_pair_us.value + 4 * _MIB / rate)
    assert "vllm's own" in time_message("a100-80gb-sxm", _MIB, 4, framework=Framework.VLLM).source


@pytest.mark.parametrize(
    "gpu", ["l40", "l20", "rtx-6000-ada", "rtx-pro-6000-blackwell-server", "a100-40gb-pcie"]
)
def test_cards_without_a_switch_leave_all_to_nccl(gpu):
    for gpus in (2, 4):
        assert time_message(gpu, 4096, gpus).source.startswith("NCCL over PCIe")


@pytest.mark.parametrize(
    ("gpu", "gpus", "mebibytes", "time_us"),
    [  # ai-dynamo/aiconfigurator @095f58a, nccl
        ("h100-sxm", 2, 256, 881.3),
        ("h100-sxm", 8, 256, 1092.1),
        ("b200", 4, 256, 659.1),
        ("rtx-pro-6000-blackwell-server", 4, 256, 15667.0),
        ("h200-sxm", 4, 16, 98.8),
    ],
)
def test_large_messages_take_the_measured_time(gpu, gpus, mebibytes, time_us):
    found = time_message(gpu, mebibytes * _MIB, gpus)
    assert found.us == pytest.approx(time_us, rel=0.1)
    assert found.basis is Basis.CALIBRATED


def test_interpolation_meets_the_model_at_powers_of_two():
    sizes = 2.0 ** np.arange(24, 31)
    batch = CollectiveBatch(Operator.SEND_RECV, DataType.BF16, sizes, np.full(len(sizes), 2.0))
    wanted = np.maximum.accumulate(predict(batch, load_gpu("h20")).time_us)
    found = [time_message("h20", int(size), 2, CollectiveKind.SEND_RECV).us for size in sizes]
    assert found == pytest.approx(wanted.tolist(), rel=1e-9)


def test_a_bridge_joins_pairs_alone():
    bridged = time_message("rtx-a6000", 64 * _MIB, 2, has_bridge=True)
    assert bridged.us < 0.7 * time_message("rtx-a6000", 64 * _MIB, 2).us
    assert time_message("rtx-a6000", 64 * _MIB, 4, has_bridge=True) == time_message("rtx-a6000", 64 * _MIB, 4)


def test_an_unmeasured_host_link_is_uncertain():
    found = time_message("l40", 64 * _MIB, 2)
    assert found.basis is Basis.ASSUMED
    assert found.high_us > 1.7 * found.us
    assert found.low_us < 0.6 * found.us


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_one_pass_is_half_of_two_for_large_messages(kind):
    both = time_message("b200", 512 * _MIB, 4).us
    assert 0.5 * both < time_message("b200", 512 * _MIB, 4, CollectiveKind(kind)).us < 0.65 * both


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**36),
    st.integers(1, 16),
    st.sampled_from(list(CollectiveKind)),
    st.sampled_from(["l40", "a40", "h800-sxm", "gb200", "t4", "v100-sxm2"]),
)
def test_times_of_one_maker_grow_with_bytes(message_bytes, gpus, kind, gpu):
    link = find_group_link(load_gpu(gpu))
    less = time_transfer(kind, message_bytes, gpus, link)
    more = time_transfer(kind, 2 * message_bytes, gpus, link)
    assert less.low_us <= less.us <= less.high_us < np.inf
    if gpus == 1 or message_bytes == 0:
        assert less.us == 0.0
    elif less.source == more.source:
        assert 0.0 < less.us <= more.us * (1 + 1e-12)
