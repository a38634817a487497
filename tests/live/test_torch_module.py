"""`from_torch` on small real modules, against the archive of the same program and closed forms."""

import pytest

import analyzer
from analyzer.forecast.exported.archive import read_exported_program
from analyzer.forecast.exported.aten_graph import make_tensor_graph
from analyzer.forecast.training.pass_kernels import list_forward_pass
from analyzer.live.torch_module import read_live_program
from analyzer.text.errors import UsageError

torch = pytest.importorskip("torch")


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        weights = torch.softmax(query @ key.transpose(-1, -2) * 0.125, -1)
        return x + weights @ value


@pytest.fixture(scope="module")
def exported():
    return torch.export.export(Attention().eval(), (torch.zeros(4, 32, 64),))


def test_live_programs_and_their_archives_are_the_same(exported, tmp_path):
    torch.export.save(exported, tmp_path / "attention.pt2")
    live = make_tensor_graph(read_live_program(exported, "attention"))
    saved = make_tensor_graph(read_exported_program(tmp_path / "attention.pt2"))
    assert list(filter(None, list_forward_pass(live).forward)) == list(
        filter(None, list_forward_pass(saved).forward)
    )
    assert live.parameters == saved.parameters == 64 * 192 + 192 + 128


def test_an_attention_block_has_its_products(exported):
    report = analyzer.from_torch(exported, gpu="v100-pcie")
    assert report.flops == 2 * 4 * 32 * 64 * 192 + 2 * 2 * 4 * 32 * 32 * 64
    assert set(report.operators) >= {"linear", "batched_product", "softmax", "layernorm", "pointwise"}
    assert not report.warnings
    assert report.mode == "inference"


def test_a_module_in_training_has_three_times_the_products_less_its_inputs_gradient():
    module = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    inputs = (torch.zeros(16, 32),)
    forward = analyzer.from_torch(module, inputs, gpu="h100", dtype="bf16")
    both = analyzer.from_torch(module, inputs, gpu="h100", dtype="bf16", training=True)
    first, second = 2 * 16 * 32 * 64, 2 * 16 * 64 * 8
    assert forward.flops == first + second
    assert both.flops == 2 * first + 3 * second
    assert both.model == "Sequential"


def test_what_is_no_module_or_cannot_be_exported_is_refused():
    with pytest.raises(UsageError, match="no torch module"):
        analyzer.from_torch(3)
    with pytest.raises(UsageError, match="cannot export Linear"):
        analyzer.from_torch(torch.nn.Linear(4, 4), (torch.zeros(2, 5),))
