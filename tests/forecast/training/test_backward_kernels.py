"""Gradients: shapes of products, traffic of element-wise operators, sums where a tensor forks."""

from hypothesis import given
from hypothesis import strategies as st

from analyzer.forecast.training.graph_builder import GraphBuilder
from analyzer.forecast.training.kernels import ProductKernel, StreamKernel
from analyzer.forecast.training.pass_kernels import list_training_pass
from analyzer.operators.names import DataType

FP32 = DataType.FP32


def _build():
    return GraphBuilder(FP32)


def _finish(build):
    return list_training_pass(build.build("test", layers=0, tokens=1, batch=1))


@given(rows=st.integers(1, 4096), k=st.integers(1, 4096), n=st.integers(1, 4096))
def test_a_linear_layers_gradients_are_its_two_transposes(rows, k, n):
    build = _build()
    hidden = build.linear("first", build.input("x", (rows, 3)), k, has_bias=False)
    build.linear("second", hidden, n, has_bias=False)
    products = [k for k in _finish(build).backward[-1] if isinstance(k, ProductKernel)]
    assert products == [
        ProductKernel(rows, k, n, 1, False, FP32),  # dX = dY · W
        ProductKernel(n, k, rows, 1, False, FP32),  # dW = dY' · X
    ]


def test_the_first_layers_input_needs_no_gradient_and_the_bias_is_a_sum():
    build = _build()
    build.linear("first", build.input("x", (8, 4)), 16)
    assert _finish(build).backward[-1] == (
        ProductKernel(16, 4, 8, 1, False, FP32),
        StreamKernel(8 * 16 * 4.0, 0.0, FP32),
    )


@given(batch=st.integers(1, 64), m=st.integers(1, 512), n=st.integers(1, 512), k=st.integers(1, 512))
def test_batched_products_have_two_gradients_of_equal_work(batch, m, n, k):
    build = _build()
    scale = build.linear("w", build.input("x", (batch, m, 2)), k)
    other = build.linear("v", build.input("y", (batch, k, 2)), n)
    build.matmul("product", scale, other)
    graph = build.build("test", layers=0, tokens=1, batch=1)
    found = list_training_pass(graph)
    forward, gradients = found.forward[-1][-1], found.backward[-1]
    assert [g.flops for g in gradients] == [forward.flops, forward.flops]
    assert (gradients[0].m, gradients[0].n) == (m, k)
    assert (gradients[1].m, gradients[1].n) == (k, n)


def _elementwise(function, *, twice=False):
    """Return the backward bytes of a function of one computed tensor of 1000 elements, in its passes."""
    build = _build()
    x = build.linear("w", build.input("x", (1000, 1)), 1)
    y = build.linear("v", build.input("y", (1000, 1)), 1)
    build.pointwise("f", function, x, *([y] if twice else []))
    kernels = _finish(build).backward[-1]
    return sum(k.read_bytes + k.written_bytes for k in kernels) / 4000.0


def test_passes_of_element_wise_gradients():
    """As the times of NeuSight's labels show them: V100, GPT2-large and BERT-large in training."""
    assert _elementwise("add", twice=True) == 0.0
    assert _elementwise("scale") == 2.0
    assert _elementwise("tanh") == 3.0
    assert _elementwise("dropout") == 2.25
    assert _elementwise("mul", twice=True) == 6.0
    assert _elementwise("pow") == 7.0


def test_softmax_has_a_product_before_its_row_wise_gradient():
    build = _build()
    build.softmax("s", build.linear("w", build.input("x", (128, 1)), 64))
    kernels = _finish(build).backward[-1]
    assert sum(k.read_bytes + k.written_bytes for k in kernels) == 6.0 * 128 * 64 * 4


@given(uses=st.integers(1, 6))
def test_a_tensor_used_often_adds_its_gradients(uses):
    build = _build()
    x = build.linear("w", build.input("x", (16, 1)), 32, has_bias=False)
    total = x
    for i in range(uses):
        total = build.pointwise(f"use{i}", "add", build.pointwise(f"tanh{i}", "tanh", x), total)
    sums = [k for k in _finish(build).backward[x] if isinstance(k, StreamKernel)]
    assert sums == [StreamKernel(2 * 2048.0, 2048.0, FP32)] * uses  # uses + 1 consumers


def test_slices_join_their_gradients_by_a_copy():
    build = _build()
    qkv = build.linear("qkv", build.input("x", (16, 8)), 24, has_bias=False)
    parts = [build.view(f"part{i}", qkv, (16, 8)) for i in range(3)]
    build.pointwise("sum", "add", build.pointwise("sum0", "add", parts[0], parts[1]), parts[2])
    streams = [k for k in _finish(build).backward[qkv] if isinstance(k, StreamKernel)]
    assert streams == [StreamKernel(16 * 24 * 4.0, 16 * 24 * 4.0, FP32)]


def test_what_the_loss_does_not_need_has_no_gradient():
    build = _build()
    x = build.linear("w", build.input("x", (16, 8)), 8)
    build.linear("unused", x, 4)
    build.cross_entropy("loss", build.linear("head", x, 4))
    found = _finish(build)
    assert found.backward[2] == ()
    assert found.backward[3]
