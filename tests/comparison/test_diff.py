"""`analyzer.diff` on real dumps and on edits of them whose effect is known."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec
import pytest
from paths import HWDB, TRACES

import analyzer
from analyzer.pipeline.options import Options
from analyzer.render.registry import render_report
from analyzer.report.diff_schema import DiffReport, KernelDiff, KernelStatus, Verdict

REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"
_INSTRUCTION = re.compile(r"(/\*[0-9a-f]{4}\*/\s+)(.*?)( ;.*?\n\s+/\* 0x)([0-9a-f]{16})( \*/)")
_STALL_BITS = 15 << 41
SQUARE = analyzer.Launch(grid=(16, 16), block=(16, 16), arguments={3: 256})  # of the products


def cut_kernel(name: str) -> str:
    """The dump of one kernel alone."""
    head, *functions = re.split(r"(?=^\t\tFunction : )", REPORT16.read_text(), flags=re.M)
    return head + next(each for each in functions if f"Function : {name}\n" in each)


def edit(text: str, change: Callable[[str, int], tuple[str, int]]) -> str:
    """Change instruction text and upper word of each instruction."""

    def replace(found: re.Match[str]) -> str:
        instruction, word = change(found[2], int(found[4], 16))
        return f"{found[1]}{instruction}{found[3]}{word:016x}{found[5]}"

    return _INSTRUCTION.sub(replace, text)


def compare(folder: Path, old: str, new: str, **options: object) -> KernelDiff:
    for name, text in (("old.sass", old), ("new.sass", new)):
        (folder / name).write_text(text)
    report = analyzer.diff(str(folder / "old.sass"), str(folder / "new.sass"), gpu="a100", **options)  # type: ignore[arg-type]
    (found,) = report.kernels
    return found


def test_a_dump_against_itself_is_unchanged_and_not_analyzed() -> None:
    report = analyzer.diff(str(REPORT16), str(REPORT16), gpu="a100")
    assert {(each.status, each.verdict, each.cycles_change) for each in report.kernels} == {
        (KernelStatus.SAME, Verdict.UNCHANGED, 0.0)
    }
    assert len(report.kernels) == 16
    assert not any(each.predictions for each in report.kernels)


def test_longer_stalls_in_a_loop_are_significant(tmp_path: Path) -> None:
    old = cut_kernel("matmul_tiled")
    new = edit(old, lambda text, word: (text, word & ~_STALL_BITS | 15 << 41))
    found = compare(tmp_path, old, new, launch=SQUARE)
    assert (found.status, found.verdict) == (KernelStatus.CHANGED, Verdict.SIGNIFICANT)
    assert found.cycles_change is not None
    assert found.cycles_change > 0.1
    assert found.evidence[0].startswith("slower: ")
    assert any("other control codes only" in each for each in found.evidence)
    faster = compare(tmp_path, new, old, launch=SQUARE)
    assert faster.verdict is Verdict.SIGNIFICANT
    assert faster.cycles_change is not None
    assert faster.cycles_change < 0


def test_one_stall_cycle_outside_of_loops_is_benign(tmp_path: Path) -> None:
    old = cut_kernel("matmul_tiled")
    new = edit(old, lambda text, word: (text, word + (1 << 41) if text.startswith("STG") else word))
    assert new != old
    found = compare(tmp_path, old, new, launch=SQUARE)
    assert found.verdict is Verdict.BENIGN


def test_other_registers_are_benign(tmp_path: Path) -> None:
    old = cut_kernel("saxpy")
    new = edit(old, lambda text, word: (re.sub(r"\bR9\b", "R11", text), word))
    found = compare(tmp_path, old, new)
    assert found.verdict is Verdict.BENIGN
    assert any("with other registers or operands" in each for each in found.evidence)
    assert found.instructions_changed == 2


def test_uncoalesced_access_names_the_place(tmp_path: Path) -> None:
    old = cut_kernel("saxpy")  # the stride of the elements, 4 bytes, becomes 128
    new = edit(old, lambda text, word: (text.replace("2.384185791015625e-07", "7.62939453125e-06"), word))
    assert new != old
    found = compare(tmp_path, old, new)
    assert found.verdict is Verdict.SIGNIFICANT
    assert any(
        re.search(r"LDG.E at 0x[0-9a-f]+ touches 32 sectors per request \(was 4\)", e) for e in found.evidence
    )


def test_a_moved_wait_is_told(tmp_path: Path) -> None:
    """The wait of the last FFMA for its load goes to the instruction before."""
    old = cut_kernel("saxpy")
    at = list(_INSTRUCTION.finditer(old))
    rows = [row for row, found in enumerate(at) if found[2].startswith("FFMA")]
    waits = int(at[rows[-1]][4], 16) & 63 << 52
    assert waits
    row = -1

    def move(text: str, word: int) -> tuple[str, int]:
        nonlocal row
        row += 1
        if row == rows[-1]:
            return text, word & ~(63 << 52)
        return text, word | waits if row == rows[-1] - 1 else word

    found = compare(tmp_path, old, edit(old, move))
    assert found.verdict in (Verdict.BENIGN, Verdict.SIGNIFICANT)
    assert found.instructions_changed == 2


def test_without_control_codes_on_one_side_it_is_unclear(tmp_path: Path) -> None:
    old = cut_kernel("conv2d_3x3")
    new = re.sub(r"/\* 0x[0-9a-f]{16} \*/", "", old)
    found = compare(tmp_path, old, new)
    assert found.verdict is Verdict.UNCLEAR
    assert found.evidence[0].startswith("the new side has no control codes")


def test_another_architecture_is_unclear_and_said() -> None:
    report = analyzer.diff(
        str(REPORT16), str(TRACES / "cuda" / "sm_90" / "report16.sass"), options=Options(kernels=("saxpy",))
    )
    (found,) = report.kernels
    assert (found.old_architecture, found.architecture, found.verdict) == ("sm_80", "sm_90", Verdict.UNCLEAR)
    assert found.evidence[0].startswith("another architecture: sm_80 -> sm_90")
    assert [each.gpu_name for each in found.predictions] == ["H100 SXM", "A100-80GB SXM"]


def test_new_and_removed_kernels(tmp_path: Path) -> None:
    (tmp_path / "old.sass").write_text(cut_kernel("saxpy"))
    (tmp_path / "new.sass").write_text(cut_kernel("matmul_tiled"))
    report = analyzer.diff(str(tmp_path / "old.sass"), str(tmp_path / "new.sass"))
    assert [(each.name, each.status) for each in report.kernels] == [
        ("matmul_tiled", KernelStatus.NEW),
        ("saxpy", KernelStatus.REMOVED),
    ]
    assert report.notes == ("the two sides have no kernel in common",)


def test_the_aligned_listing_is_there_for_named_kernels(tmp_path: Path) -> None:
    old = cut_kernel("saxpy")
    new = edit(old, lambda text, word: (re.sub(r"\bR9\b", "R11", text), word))
    found = compare(tmp_path, old, new, options=Options(kernels=("saxpy",)))
    kinds = [line.kind for line in found.listing]
    assert kinds.count("changed") == 2
    assert {line.kind for line in found.listing} == {"equal", "changed"}
    assert all(line.old is not None and line.old.control for line in found.listing)
    text = render_report(
        analyzer.diff(
            str(tmp_path / "old.sass"), str(tmp_path / "new.sass"), options=Options(kernels=("saxpy",))
        )
    )
    assert "[B" in text
    assert len(re.findall(r"^- .*\[B.*R9", text, re.M)) == len(re.findall(r"^\+ .*\[B.*R11", text, re.M)) == 2


def make_stored(path: Path, source: str, *, listing: bool) -> None:
    options = Options(
        kernels=("saxpy",),
        listing=listing,
        launch=analyzer.Launch(grid=4096, block=256, arguments={3: 1 << 20}).check(),
    )
    path.write_bytes(msgspec.json.encode(analyzer.analyze(source, gpu="a100", options=options)))


@pytest.mark.parametrize("listing", [True, False])
def test_stored_reports(listing: bool, tmp_path: Path) -> None:
    old, new = cut_kernel("saxpy"), cut_kernel("saxpy").replace("2.384185791015625e-07", "7.62939453125e-06")
    for name, text in (("old", old), ("new", new)):
        (tmp_path / f"{name}.sass").write_text(text)
        make_stored(tmp_path / f"{name}.json", str(tmp_path / f"{name}.sass"), listing=listing)
    (same,) = analyzer.diff(str(tmp_path / "old.json"), str(tmp_path / "old.json")).kernels
    assert same.verdict is Verdict.UNCHANGED
    (changed,) = analyzer.diff(str(tmp_path / "old.json"), str(tmp_path / "new.json")).kernels
    assert changed.verdict is Verdict.SIGNIFICANT
    assert changed.cycles_change is not None
    assert changed.cycles_change > 0.1
    told = any("listing" in each for each in changed.evidence)
    assert told is not listing
    (mixed,) = analyzer.diff(str(tmp_path / "old.json"), str(tmp_path / "new.sass")).kernels
    assert mixed.predictions == changed.predictions
    if listing:
        (equal,) = analyzer.diff(str(tmp_path / "old.sass"), str(tmp_path / "old.json")).kernels
        assert equal.verdict is Verdict.UNCHANGED


def test_the_report_is_as_published_and_read_back(tmp_path: Path) -> None:
    old = cut_kernel("saxpy")
    (tmp_path / "old.sass").write_text(old)
    (tmp_path / "new.sass").write_text(old.replace("2.384185791015625e-07", "7.62939453125e-06"))
    report = analyzer.diff(str(tmp_path / "old.sass"), str(tmp_path / "new.sass"), gpu=["a100", "a30"])
    text = render_report(report, "json")
    jsonschema.validate(json.loads(text), json.loads((HWDB / "schema" / "diff-1.json").read_text()))
    again = analyzer.read_report(text.encode())
    assert isinstance(again, DiffReport)
    assert again == report
    (kernel,) = report.kernels
    for each in kernel.predictions:
        assert sum(each.new_cpi_stack.values()) == pytest.approx(each.new_cycles)
    assert {each.gpu for each in kernel.predictions} == set(report.gpus)
    assert [total.gpu for total in report.totals] == list(report.gpus)


def test_a_parameter_more_is_a_trap_for_positions() -> None:
    folder = TRACES / "levels" / "sm_90"
    report = analyzer.diff(
        str(folder / "matmul.cubin"),
        str(folder / "matmul_unaligned.cubin"),
        launch=analyzer.Launch(grid=16, arguments={3: 128, 4: 128, 5: 128}),
    )
    (found,) = report.kernels
    before, after = (
        [
            p.size_bytes
            for p in analyzer.load(str(folder / f"{name}.cubin")).kernels[0].kernel.parameters or ()
        ]
        for name in ("matmul", "matmul_unaligned")
    )
    assert any("parameters of" in each for each in found.evidence) == (before != after)
    assert any("by position" in each for each in report.notes) == (before != after)
