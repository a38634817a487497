"""Names and types of the arguments from Triton's NAME.json, against what ptxas wrote into the cubin."""

import json
import shutil
from pathlib import Path

import pytest
from paths import TRACES

from analyzer.execution.binding.parameter_layout import find_parameter_layout, lay_out_parameters
from analyzer.frontend.cubin_info import parse_cubin
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.module_reader import read_module
from analyzer.frontend.triton_metadata import build_parameter_declarations, read_triton_metadata
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import Dim3
from analyzer.ir.module import Parameter

TRITON = TRACES / "triton"
WITH_CUBIN = sorted((TRACES / "cubin").glob("*.cubin"))
DUMPS = sorted(p for p in TRITON.glob("sm_*/*.json"))

TMA = {
    "name": "kernel",
    "num_warps": 8,
    "shared": 0,
    "signature": {"a_desc": "tensordesc<fp16[128, 64]>", "BLOCK": "constexpr", "m": "i32", "alpha": "fp32"},
}


def layout(parameters: tuple[Parameter, ...]) -> list[tuple[int, int]]:
    return [(p.offset, p.size_bytes) for p in parameters]


@pytest.mark.parametrize("path", WITH_CUBIN, ids=lambda path: path.name)
def test_layout_is_that_of_the_cubin(path: Path) -> None:
    stem, _, arch = path.stem.rpartition("_sm_")
    metadata = read_triton_metadata(TRITON / f"sm_{arch}" / f"{stem}.json")
    assert metadata is not None
    types = build_parameter_declarations(metadata, f"sm_{arch}")
    assert types is not None
    (facts,) = parse_cubin(path.read_bytes()).metadata.values()
    stated = facts.build_parameter_list()
    assert stated is not None
    assert facts.parameter_base is not None
    assert layout(lay_out_parameters(types, facts.parameter_base)) == layout(stated)


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_dump_beside_its_metadata_has_named_parameters(path: Path) -> None:
    dump = path.with_suffix(".sass")
    if not dump.is_file():
        pytest.skip("no dump beside it")
    (kernel,) = read_module(str(dump)).kernels
    signature = json.loads(path.read_text())["signature"]
    wanted = [name for name, kind in signature.items() if kind != "constexpr"]
    arch = load_arch(kernel.arch)
    found = find_parameter_layout(kernel, {}, arch)
    assert [p.name for p in found.parameters if p.name and "." not in p.name] == wanted
    assert [p.is_hidden for p in found.parameters[-2:]] == [True, True]
    assert not any("beyond" in text for text in found.assumptions)


@pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm is not installed here")
def test_a_cubin_takes_the_names_and_keeps_its_layout(tmp_path: Path) -> None:
    shutil.copy(TRACES / "cubin" / "softmax_sm_90.cubin", tmp_path / "softmax.cubin")
    shutil.copy(TRITON / "sm_90" / "softmax.json", tmp_path / "softmax.json")
    (kernel,) = read_module(str(tmp_path / "softmax.cubin")).kernels
    assert kernel.parameters is not None
    assert [p.name for p in kernel.parameters] == [
        "x_ptr",
        "out_ptr",
        "columns",
        "x_stride",
        "out_stride",
        "",
        "",
    ]
    assert [p.type_name for p in kernel.parameters[:3]] == ["*fp16", "*fp16", "i32"]
    assert kernel.parameters[-1].is_hidden


@pytest.mark.parametrize(
    ("arch", "offsets"),
    [
        ("sm_90", [0x30, 0xB0, 0xB4, 0xB8, 0xC0, 0xC8, 0xCC, 0xD0, 0xD8]),
        ("sm_100a", [0x0, 0x80, 0x84, 0x88, 0x90, 0x98, 0x9C, 0xA0, 0xA8]),
    ],
)
def test_a_descriptor_is_a_map_with_shape_and_strides(tmp_path: Path, arch: str, offsets: list[int]) -> None:
    (tmp_path / "k.json").write_text(json.dumps(TMA))
    metadata = read_triton_metadata(tmp_path / "k.json")
    assert metadata is not None
    types = build_parameter_declarations(metadata, arch)
    assert types is not None
    found = lay_out_parameters(types, int(load_arch(arch).constant_bank.arguments.value))
    assert [p.offset for p in found] == offsets
    assert [p.name for p in found] == [
        "a_desc", "a_desc.shape.0", "a_desc.shape.1", "a_desc.stride.0", "a_desc.stride.1", "m", "alpha", "", "",
    ]  # fmt: skip


def test_a_descriptor_before_hopper_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "k.json").write_text(json.dumps(TMA))
    metadata = read_triton_metadata(tmp_path / "k.json")
    assert metadata is not None
    assert build_parameter_declarations(metadata, "sm_80") is None


@pytest.mark.parametrize(
    "change", [{"signature": [1]}, {"signature": {"x": 3}}, {"signature": {"x": "complex"}}]
)
def test_signatures_of_another_kind_are_passed_over(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / "k.json").write_text(json.dumps(TMA | change))
    metadata = read_triton_metadata(tmp_path / "k.json")
    assert metadata is not None
    assert build_parameter_declarations(metadata, "sm_90") is None


def test_ctas_of_a_cluster_come_from_the_metadata(tmp_path: Path) -> None:
    dump = TRITON / "sm_90" / "softmax.sass"
    shutil.copy(dump, tmp_path / "softmax.sass")
    content = json.loads(dump.with_suffix(".json").read_text()) | {"num_ctas": 2}
    (tmp_path / "softmax.json").write_text(json.dumps(content))
    (kernel,) = read_module(str(tmp_path / "softmax.sass")).kernels
    assert kernel.cluster == Dim3(2)
