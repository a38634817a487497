"""Archives of torch.export: operators, sizes and parameters without torch; damaged and hostile files."""

import json
import zipfile

import pytest
from paths import ROOT

from analyzer.forecast.exported.archive import read_exported_program
from analyzer.forecast.exported.aten_graph import make_tensor_graph
from analyzer.forecast.training.forward_kernels import list_forward
from analyzer.forecast.training.tensor_graph import NodeKind
from analyzer.operators.names import DataType
from analyzer.pipeline.iteration import forecast_exported
from analyzer.text.errors import InputError

ARCHIVE = ROOT / "docs" / "transformer.pt2"  # two layers of 16 columns, 8 x 256 tokens, 64 words


def _sum_flops(graph):
    return sum(k.flops for place in range(len(graph.nodes)) for k in list_forward(graph, place))


def test_a_transformers_archive_has_its_operators_parameters_and_products():
    graph = make_tensor_graph(read_exported_program(ARCHIVE))
    layer = 2 * (2 * 16) + 16 * 48 + 48 + 16 * 16 + 16 + 16 * 64 + 64 + 64 * 16 + 16
    assert graph.parameters == 64 * 16 + 2 * layer  # the head shares the embedding's weights
    kinds = [node.kind for node in graph.nodes]
    assert kinds.count(NodeKind.LINEAR) == 9
    assert kinds.count(NodeKind.ATTENTION) == 2
    assert kinds.count(NodeKind.LAYERNORM) == 4
    assert not graph.warnings
    tokens = 8 * 256
    weights = 2 * tokens * (2 * 16 * (48 + 16 + 64 + 64) + 16 * 64)
    attention = 2 * (2 * 2 * 8 * 2 * 256 * 256 // 2 * 8)
    assert _sum_flops(graph) == weights + attention


def test_a_data_type_can_be_put_in_place_of_the_programs():
    graph = make_tensor_graph(read_exported_program(ARCHIVE), DataType.BF16)
    assert {node.dtype for node in graph.nodes if node.kind is NodeKind.LINEAR} == {DataType.BF16}


def _write(path, change):
    """Write the archive with its graph changed."""
    with zipfile.ZipFile(ARCHIVE) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename.endswith("models/model.json"):
                content = json.loads(data)
                change(content["graph_module"]["graph"])
                data = json.dumps(content).encode()
            target.writestr(entry.filename, data)
    return path


def test_unknown_operators_count_by_their_bytes_and_are_counted(tmp_path):
    def rename(graph):
        for node in graph["nodes"]:
            if "gelu" in node["target"]:
                node["target"] = "torch.ops.mylib.strange.default"
            if "layer_norm" in node["target"]:
                node["target"] = "torch.ops.aten.conv1d.default"

    graph = make_tensor_graph(read_exported_program(_write(tmp_path / "model.pt2", rename)))
    text = " ".join(graph.warnings)
    assert "2 x mylib.strange" in text
    assert "4 x aten.conv1d" in text
    strange = [place for place, node in enumerate(graph.nodes) if node.function == "unknown"]
    assert len(strange) == 6
    assert all(list_forward(graph, place)[0].read_bytes > 0 for place in strange)


@pytest.mark.parametrize("target", ["bmm", "addmm", "cross_entropy_loss", "embedding", "softmax", "cat"])
def test_operators_without_their_operands_count_as_unknown(tmp_path, target):
    """A damaged file: neither an error nor a time that is no number."""

    def damage(graph):
        for node in graph["nodes"][2:6]:
            node.update(target=f"torch.ops.aten.{target}.default", inputs=[])

    path = _write(tmp_path / "model.pt2", damage)
    report = forecast_exported(path, gpu="v100-pcie", is_training=True)
    assert 0.0 < report.total_ms < 1e3


def test_sizes_that_vary_are_those_of_the_example(tmp_path):
    def vary(graph):
        for tensor in graph["tensor_values"].values():
            for place, size in enumerate(tensor["sizes"]):
                if size == {"as_int": 256}:
                    tensor["sizes"][place] = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 256}}}

    graph = make_tensor_graph(read_exported_program(_write(tmp_path / "model.pt2", vary)))
    assert "example" in graph.warnings[0]
    assert _sum_flops(graph) == _sum_flops(make_tensor_graph(read_exported_program(ARCHIVE)))


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph["tensor_values"].update(linear={"dtype": 7, "sizes": [{"as_int": -1}]}),
        lambda graph: graph["tensor_values"].update(linear={"dtype": 7, "sizes": [{"as_int": 1 << 40}] * 9}),
        lambda graph: graph["tensor_values"].update(linear={"dtype": 7, "sizes": [{}]}),
        lambda graph: graph["nodes"][1]["inputs"][0].update(arg={"as_tensor": None}),
        lambda graph: graph.update(nodes=3),
    ],
)
def test_damaged_graphs_are_refused(tmp_path, change):
    path = _write(tmp_path / "model.pt2", change)
    with pytest.raises(InputError, match=r"model\.pt2"):
        make_tensor_graph(read_exported_program(path))


def test_what_is_no_archive_is_refused(tmp_path):
    text = tmp_path / "model.pt2"
    text.write_text("not a zip")
    with pytest.raises(InputError, match="no archive"):
        read_exported_program(text)
    with pytest.raises(InputError, match="no such file"):
        read_exported_program(tmp_path / "none.pt2")
    empty = tmp_path / "empty.pt2"
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(InputError, match="no graph"):
        read_exported_program(empty)
    deep = tmp_path / "deep.pt2"
    with zipfile.ZipFile(deep, "w") as archive:
        archive.writestr("m/models/model.json", "[" * 100_000)
    with pytest.raises(InputError, match="cannot be read"):
        read_exported_program(deep)


def test_a_graph_that_unpacks_to_too_much_is_refused_before_it_is_read(tmp_path):
    bomb = tmp_path / "bomb.pt2"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("m/models/model.json", "w", force_zip64=True) as entry,
    ):
        for _ in range(257):
            entry.write(bytes(1 << 20))
    with pytest.raises(InputError, match="is larger than"):
        read_exported_program(bomb)
