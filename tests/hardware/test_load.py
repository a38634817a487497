"""Hardware files of the user's own: how they are found, what they inherit, and how faults are told."""

from pathlib import Path

import pytest

from analyzer.hardware.gpu_database import load_arch, load_gpu
from analyzer.hardware.parameter_edits import find_hardware_parameter
from analyzer.text.errors import HardwareError, format_diagnostic

VARIANT = """\
schema = "warplens/gpu/1"
name = "My H100"
inherits = "h100-sxm"

[sources]
me = "measured here"

[clock]
sustained_mhz = { value = 1500, basis = "measured", source = "me" }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARPLENS_HWDB", str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def fault(path: Path) -> HardwareError:
    with pytest.raises(HardwareError) as caught:
        load_gpu(str(path))
    return caught.value


def test_a_variant_inherits_what_it_does_not_say(folder: Path) -> None:
    gpu, parent = load_gpu(str(written(folder, VARIANT))), load_gpu("h100-sxm")
    assert gpu.name == "My H100"
    assert gpu.key == "mine"
    assert gpu.find_clock_mhz(tensor=None).value == 1500
    assert gpu.file.clock.boost_mhz == parent.file.clock.boost_mhz
    assert gpu.sm_count == parent.sm_count
    assert gpu.arch == parent.arch
    assert gpu.file.aliases == ()
    assert set(gpu.file.sources) > {"me"}


def test_a_gpu_is_verified_where_no_figure_that_decides_times_is_assumed(folder: Path) -> None:
    assert load_gpu(str(written(folder, VARIANT))).is_verified
    for basis, keys in (("assumed", ("sm.count", "tensor.int8")), ("measured", ())):
        figure = f'{{ value = 100, basis = "{basis}", source = "me" }}'
        rate = f"[tensor.int8]\nfma_per_cycle_per_sm = {figure}\n"
        gpu = load_gpu(str(written(folder, f"{VARIANT}[sm]\ncount = {figure}\n{rate}", f"{basis}.toml")))
        assert gpu.assumed_deciding_keys == keys
        assert gpu.is_verified == (keys == ())


EDITED = """\
schema = "warplens/gpu/1"
name = "B200 with more bandwidth"
inherits = "b200"

[memory]
bandwidth_gbps = { value = 22000, basis = "assumed", source = "my estimate" }
"""


def test_an_edited_figure_takes_along_what_was_derived_from_it(folder: Path) -> None:
    parent, gpu = load_gpu("b200"), load_gpu(str(written(folder, EDITED)))
    factor = 22000 / parent.file.memory.bandwidth_gbps.value
    assert gpu.peak_dram_gbps.value == pytest.approx(parent.peak_dram_gbps.value * factor)
    assert gpu.sustained_dram_gbps.value == pytest.approx(parent.sustained_dram_gbps.value * factor)
    assert [str(one) for one in gpu.scaled_figures] == [
        "memory.sustained_gbps scaled by 2.868 with memory.bandwidth_gbps",
        "memory.streaming_gbps scaled by 2.868 with memory.bandwidth_gbps",
        "memory.read_gbps scaled by 2.868 with memory.bandwidth_gbps",
    ]
    assert gpu.peak_dram_gbps.note == "x2.86757 of 7260 (measured), as memory.bandwidth_gbps is set"


def test_what_a_file_gives_itself_does_not_follow(folder: Path) -> None:
    own = 'sustained_gbps = { value = 20000, basis = "measured", source = "me" }\n'
    gpu = load_gpu(str(written(folder, EDITED + own)))
    assert gpu.peak_dram_gbps.value == 20000
    # the rate of streaming kernels follows the nearer of the two
    assert gpu.sustained_dram_gbps.value == pytest.approx(7260 * 20000 / 7260)


def test_a_file_that_inherits_from_an_edited_one_has_what_followed_there(folder: Path) -> None:
    first = load_gpu(str(written(folder, EDITED, "first.toml")))
    more = 'count = { value = 160, basis = "assumed", source = "my estimate" }'
    text = f'schema = "warplens/gpu/1"\nname = "second"\ninherits = "first"\n[sm]\n{more}\n'
    second = load_gpu(str(written(folder, text, "second.toml")))
    assert second.peak_dram_gbps == first.peak_dram_gbps
    kept = second.scaled_figures[: len(first.scaled_figures)]
    assert kept == first.scaled_figures
    assert {one.leader for one in second.scaled_figures[len(kept) :]} == {"sm.count"}
    assert second.sm_count == 160


def test_a_file_that_edits_a_base_has_what_is_derived_from_it(folder: Path) -> None:
    parent = load_gpu("h100")
    text = 'schema = "warplens/gpu/1"\nname = "more slices"\ninherits = "h100"\n[l2]\n'
    slices = 'slices = { value = 100, basis = "assumed", source = "my estimate" }\n'
    gpu = load_gpu(str(written(folder, text + slices)))
    for key in ("l2.slice_gbps", "l2.requests_per_us", "l2.bandwidth_gbps", "l2.missed_lines_per_us"):
        old = find_hardware_parameter(parent, key).value
        assert find_hardware_parameter(gpu, key).value == pytest.approx(old * 100 / 80), key
    assert find_hardware_parameter(gpu, "l2.clock_mhz") == find_hardware_parameter(parent, "l2.clock_mhz")


def test_a_product_of_one_s_own_may_inherit_from_a_chip(folder: Path) -> None:
    figure = '{ value = 1000, basis = "measured", source = "me" }'
    rows = {
        "clock": f"boost_mhz = {figure}",
        "sm": f"count = {figure}",
        "memory": f'kind = "HBM3"\nbandwidth_gbps = {figure}',
        "l2": f"size_bytes = {figure}",
        "launch": f"ctas_per_us = {figure}",
    }
    tables = "".join(f"\n[{key}]\n{row}\n" for key, row in rows.items())
    head = VARIANT.partition("[clock]")[0].replace("h100-sxm", "gh100")
    gpu, sibling = load_gpu(str(written(folder, head + tables))), load_gpu("h100-sxm")
    assert gpu.sm_count == 1000
    assert gpu.arch == sibling.arch
    assert gpu.file.tensor == sibling.file.tensor


def test_a_file_in_the_user_s_folder_is_found_by_name(folder: Path) -> None:
    written(folder, VARIANT, "my-h100.toml")
    assert load_gpu("My H100").find_clock_mhz(tensor=None).value == 1500


def test_a_file_in_the_user_s_folder_goes_before_the_shipped_one(folder: Path) -> None:
    shipped = load_gpu("t4").sm_count
    text = VARIANT.replace("h100-sxm", "a10").replace("My H100", "T4 of mine")
    written(folder, text, "t4.toml")
    assert load_gpu("t4").name == "T4 of mine"
    assert load_gpu("t4").sm_count != shipped


def test_a_variant_of_a_variant(folder: Path) -> None:
    written(folder, VARIANT, "first.toml")
    text = VARIANT.replace("h100-sxm", "first").replace("1500", "1200").replace("My H100", "Second")
    gpu = load_gpu(str(written(folder, text, "second.toml")))
    assert (gpu.name, gpu.find_clock_mhz(tensor=None).value) == ("Second", 1200)
    assert gpu.sm_count == load_gpu("h100-sxm").sm_count


FAULTS = [
    pytest.param(
        VARIANT.replace("value = 1500", 'value = "fast"'),
        "Expected `float`, got `str`",
        9,
        "sustained_mhz",
        id="a-text-for-a-number",
    ),
    pytest.param(VARIANT.replace(', source = "me"', ""), "missing required field `source`", 9, "sustained_mhz", id="no-source"),
    pytest.param(VARIANT.replace('"measured", source', '"guessed", source'), "Invalid enum value 'guessed'", 9, "sustained_mhz", id="unknown-basis"),
    pytest.param(VARIANT.replace("[clock]", "[clocks]"), "unknown field `clocks`", 0, "", id="unknown-table"),
    pytest.param(VARIANT.replace("sustained_mhz", "sustaned_mhz"), "unknown field `sustaned_mhz`", 8, "[clock]", id="misspelt-figure"),
    pytest.param(VARIANT.replace("gpu/1", "gpu/9"), "Invalid enum value 'warplens/gpu/9'", 1, "schema", id="another-schema"),
    pytest.param(VARIANT.replace('"h100-sxm"', '"h1000"'), "no file 'h1000' to inherit from", 3, "inherits", id="no-such-parent"),
    pytest.param(VARIANT.replace("= 1500", "= "), "not TOML", 9, "sustained_mhz", id="not-toml"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "line", "shown"), FAULTS)
def test_faults_name_file_line_and_caret(
    folder: Path, text: str, message: str, line: int, shown: str
) -> None:
    path = written(folder, text)
    error = fault(path)
    assert message in str(error)
    location = error.diagnostic.location
    assert location is not None
    assert location.path == str(path)
    if line:
        assert location.line == line
        assert location.text == text.splitlines()[line - 1]
    told = format_diagnostic(error.diagnostic).splitlines()
    assert told[0].startswith(f"{path}:{location.line}:{location.column}: error: ")
    assert shown in told[1]
    assert set(told[2].strip()) == {"^"}
    assert told[1][told[2].index("^")] == location.text[location.column - 1]


def test_a_missing_table_is_told(folder: Path) -> None:
    error = fault(written(folder, 'schema = "warplens/gpu/1"\nname = "bare"\n'))
    assert "missing required field" in str(error)


def test_files_that_inherit_from_each_other_are_told(folder: Path) -> None:
    written(folder, VARIANT.replace("h100-sxm", "b"), "a.toml")
    written(folder, VARIANT.replace("h100-sxm", "a"), "b.toml")
    assert "in a circle" in str(fault(folder / "a.toml"))


def test_a_missing_file_is_told(folder: Path) -> None:
    assert "no such hardware file" in str(fault(folder / "none.toml"))


def test_a_file_that_is_not_text_is_told(folder: Path) -> None:
    path = folder / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    assert str(path) in str(fault(path))


def test_an_unknown_name_brings_the_nearest() -> None:
    with pytest.raises(HardwareError, match="no GPU is called 'rtx 4099'") as caught:
        load_gpu("rtx 4099")
    assert "rtx-4090" in caught.value.diagnostic.hint


def test_an_ambiguous_name_brings_its_candidates() -> None:
    with pytest.raises(HardwareError) as caught:
        load_gpu("GeForce RTX")
    hint = caught.value.diagnostic.hint
    assert {"rtx-3090", "rtx-4090"} <= set(hint.removeprefix("nearest: ").replace(";", ",").split(", "))


def test_an_unknown_architecture_brings_the_known() -> None:
    with pytest.raises(HardwareError, match="no figures for architecture sm_50") as caught:
        load_arch("sm_50")
    assert "sm_90" in caught.value.diagnostic.hint
