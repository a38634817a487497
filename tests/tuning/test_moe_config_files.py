"""Files of vLLM and SGLang: names, round trips, the nearest batch size, and hostile contents."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.text.errors import InputError, UsageError
from analyzer.tuning.device_names import find_device_name, find_gpu_of_device
from analyzer.tuning.moe_config_files import (
    MoeConfig,
    MoeFileKey,
    MoeFramework,
    format_moe_config_file,
    parse_file_name,
    read_moe_config_file,
)

CONFIG = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 8,
    "num_warps": 4,
    "num_stages": 3,
}

# Names of files in the two repositories.
NAMES = [
    ("E=1,N=14336,device_name=NVIDIA_A100-SXM4-80GB,dtype=int8_w8a16.json", MoeFramework.VLLM),
    ("E=128,N=1024,device_name=NVIDIA_H200.json", MoeFramework.VLLM),
    ("E=128,N=2048,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Workstation_Edition,dtype=fp8_w8a8,block_shape=[128,128].json", MoeFramework.VLLM),
    ("E=128,N=384,device_name=NVIDIA_H20-3e,dtype=fp8_w8a8,block_shape=[128, 128].json", MoeFramework.SGLANG),
    ("E=256,N=256,device_name=NVIDIA_H800,dtype=fp8_w8a8,block_shape=[128, 128]_down.json", MoeFramework.SGLANG),
    ("E=160,N=384,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition,dtype=fp8_w8a8_down.json", MoeFramework.SGLANG),
    ("E=8,N=7168,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,per_channel_quant=True.json", MoeFramework.SGLANG),
]  # fmt: skip


@pytest.mark.parametrize(("name", "framework"), NAMES)
def test_names_of_the_engines_are_understood_and_made_again(name: str, framework: MoeFramework) -> None:
    key = parse_file_name(name)
    assert key is not None
    assert key.make_file_name(framework) == name


def test_the_parts_of_a_name() -> None:
    key = parse_file_name(NAMES[4][0])
    assert key == MoeFileKey(
        experts=256, intermediate=256, device_name="NVIDIA_H800", dtype="fp8_w8a8", block_shape=(128, 128), is_down=True
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["", "config.json", "E=8,N=7168.json", "E=8,N=7168,device_name=a/b.json", "E=x,N=1,device_name=A.json",
             "E=8,N=7168,device_name=A,block_shape=[128].json", "E=" + "9" * 400 + ",N=1,device_name=A.json"]
)  # fmt: skip
def test_other_names_are_none(name: str) -> None:
    assert parse_file_name(name) is None


def test_vllm_has_one_name_for_all_of_h200() -> None:
    key = MoeFileKey(experts=8, intermediate=64, device_name="NVIDIA H200 NVL")
    assert key.make_file_name(MoeFramework.VLLM) == "E=8,N=64,device_name=NVIDIA_H200.json"
    assert key.make_file_name(MoeFramework.SGLANG) == "E=8,N=64,device_name=NVIDIA_H200_NVL.json"


def test_vllm_has_no_name_for_the_second_product() -> None:
    with pytest.raises(UsageError, match="second product"):
        MoeFileKey(experts=8, intermediate=64, device_name="A", is_down=True).make_file_name(
            MoeFramework.VLLM
        )


@pytest.mark.parametrize("device", ["a,b", "../../etc", "", "x[1]", "a=b"])
def test_a_device_name_cannot_leave_the_folder(device: str) -> None:
    with pytest.raises(UsageError, match="device name"):
        MoeFileKey(experts=8, intermediate=64, device_name=device).make_file_name(MoeFramework.VLLM)


_powers = st.sampled_from([16, 32, 64, 128, 256])
_configs = st.builds(
    MoeConfig,
    block_size_m=_powers,
    block_size_n=_powers,
    block_size_k=_powers,
    group_size_m=st.integers(1, 64),
    num_warps=st.sampled_from([4, 8]),
    num_stages=st.integers(0, 5),
    extras=st.sampled_from([{}, {"SPLIT_K": 1}, {"waves_per_eu": 2, "USE_TMA": False}]),
)


@given(entries=st.dictionaries(st.integers(1, 1 << 20), _configs, min_size=1, max_size=8))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[int, MoeConfig]
) -> None:
    path = tmp_path_factory.mktemp("files") / "E=8,N=64,device_name=X.json"
    path.write_text(format_moe_config_file(entries.items()))
    read = read_moe_config_file(path)
    assert read.by_tokens == tuple(sorted(entries.items()))
    assert read.key is not None


@given(
    tokens=st.integers(1, 10_000), sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=9, unique=True)
)
def test_the_nearest_batch_size_as_the_engines_find_it(
    tmp_path_factory: pytest.TempPathFactory, tokens: int, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("files") / "config.json"
    path.write_text(json.dumps({str(size): CONFIG for size in sizes}))
    by_size = dict.fromkeys(sizes)
    assert read_moe_config_file(path).choose(tokens)[0] == min(by_size, key=lambda size: abs(size - tokens))


def test_fields_of_the_engines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(
        json.dumps({"triton_version": "3.4.0", "1": {**CONFIG, "SPLIT_K": 1}, "2": {**CONFIG, "SPLIT_K": 1}})
    )
    read = read_moe_config_file(path)
    assert (read.triton_version, read.extra_fields) == ("3.4.0", {"SPLIT_K": 2})
    assert read.by_tokens[0][1].as_fields() == {**CONFIG, "SPLIT_K": 1}


def test_what_a_file_leaves_out_is_what_triton_takes(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64}}')
    (_, config), *_ = read_moe_config_file(path).by_tokens
    assert (config.group_size_m, config.num_warps, config.num_stages) == (1, 4, 3)


HOSTILE = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("\xff", "not JSON"),
    ("[" * 100_000, "nested too deeply"),
    ('{"1": ' * 300 + "1" + "}" * 300, "nested too deeply"),
    ("[]", "no object"),
    ("{}", "no configuration"),
    ('{"x": {}}', "no batch size"),
    ('{"0": {}}', "no batch size"),
    ('{"1": 5}', "no configuration"),
    ('{"1": {"BLOCK_SIZE_M": 16}}', "no BLOCK_SIZE_N, BLOCK_SIZE_K"),
    (json.dumps({"1": {**CONFIG, "BLOCK_SIZE_M": "16"}}), "BLOCK_SIZE_M is no number"),
    (json.dumps({"1": {**CONFIG, "BLOCK_SIZE_M": True}}), "BLOCK_SIZE_M is no number"),
    (json.dumps({"1": {**CONFIG, "BLOCK_SIZE_N": 48}}), "BLOCK_SIZE_N is 48"),
    (json.dumps({"1": {**CONFIG, "num_warps": -4}}), "num_warps is no number"),
    (json.dumps({"1": {**CONFIG, "num_stages": 1e300}}), "num_stages is no number"),
    (json.dumps({"1": {**CONFIG, "note": [1]}}), "neither number nor text"),
    (json.dumps({"1": {**CONFIG, **{f"x{i}": 0 for i in range(40)}}}), "fields that are not known"),
    ('{"1": ' + json.dumps(CONFIG) + ', "1": ' + json.dumps(CONFIG) + "}", "is there twice"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), HOSTILE, ids=[message for _, message in HOSTILE])
def test_hostile_files_give_one_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        read_moe_config_file(path)


def test_an_error_points_at_its_field(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{\n "1": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 48, "BLOCK_SIZE_K": 64}\n}')
    with pytest.raises(InputError) as caught:
        read_moe_config_file(path)
    location = caught.value.diagnostic.location
    assert location is not None
    assert (location.line, location.column) == (2, 44)


def test_a_file_that_is_too_large_or_missing(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b" " * (1 << 21))
    for each in (path, tmp_path / "none.json"):
        with pytest.raises(InputError):
            read_moe_config_file(each)


@pytest.mark.parametrize("sizes", [[], [1, 1], [0]])
def test_no_file_is_written_that_could_not_be_read(sizes: list[int]) -> None:
    config = MoeConfig(block_size_m=16, block_size_n=16, block_size_k=16)
    with pytest.raises(UsageError):
        format_moe_config_file([(size, config) for size in sizes])


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("h20", "NVIDIA H20"),
        ("rtx-4070-ti-super", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("rtx-3080-laptop", "NVIDIA GeForce RTX 3080 Laptop GPU"),
        ("a6000", "NVIDIA RTX A6000"),
    ],
)
def test_device_names(gpu: str, name: str) -> None:
    assert find_device_name(gpu) == name
    found = find_gpu_of_device(name.replace(" ", "_"))
    assert found is not None
    assert find_device_name(found) == name


def test_a_device_of_no_known_name() -> None:
    with pytest.raises(UsageError, match="not known"):
        find_device_name("p4")
    assert find_gpu_of_device("Some Other Chip") is None
