"""Parts of a cubin put together are the whole: kernels, lines, reports; and what has no parts says so."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from paths import TRACES

from analyzer import worker_pool
from analyzer.frontend.cubin_parts import PartError, join_lines, read_cubin_part
from analyzer.frontend.cuda_tools import find_tool
from analyzer.pipeline import Options, analysis_plan, input_index, load
from analyzer.pipeline.cached_analysis import analyze_files
from analyzer.pipeline.content_digests import digest_kernel
from analyzer.render.json import render_json

LIBRARY = TRACES / "library" / "report16_sm_80.cubin"
pytestmark = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm reads cubins")


@pytest.mark.parametrize("n_parts", [1, 3])
def test_parts_make_the_whole(n_parts: int) -> None:
    whole = load(str(LIBRARY)).module
    parts = [read_cubin_part(str(LIBRARY), part, n_parts) for part in range(n_parts)]
    kernels = {kernel.name: kernel for part in parts for kernel in part.module.kernels}
    assert len(kernels) == len(whole) == 16
    section_lines = [0] * len(whole)
    for number, part in enumerate(parts):
        section_lines[number::n_parts] = part.section_lines
    assert join_lines(parts[0].header_lines, section_lines) == [kernel.line for kernel in whole]
    for kernel in whole:
        own = kernels[kernel.name]
        assert digest_kernel(own, whole.source_format) == digest_kernel(kernel, whole.source_format)
        assert own.resources == kernel.resources
        assert own.parameters == kernel.parameters


def test_labels_are_numbered_otherwise_and_do_not_count() -> None:
    whole = load(str(LIBRARY)).module
    (last,) = read_cubin_part(str(LIBRARY), 15, 16).module.kernels
    assert last.name == whole.kernels[-1].name
    assert last.labels != whole.kernels[-1].labels
    assert digest_kernel(last, whole.source_format) == digest_kernel(whole.kernels[-1], whole.source_format)


def test_what_has_no_parts(tmp_path: Path) -> None:
    text = tmp_path / "text.cubin"
    text.write_text("no ELF file")
    for path, part, n_parts in ((LIBRARY, 16, 17), (text, 0, 2), (tmp_path / "none.cubin", 0, 2)):
        with pytest.raises(PartError):
            read_cubin_part(str(path), part, n_parts)


def fail_if_any_path(paths: Sequence[str], **_: object) -> Iterator[object]:
    assert not paths, "read as a whole"
    return iter(())


@pytest.mark.parametrize("assumes_launch", [False, True])
def test_the_report_is_the_same_in_parts(
    assumes_launch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(models=("roofline",), shares_steps=False, assumes_launch=assumes_launch, step_limit=20)
    whole = render_json(analyze_files([str(LIBRARY)], "a100", options))
    monkeypatch.setattr(analysis_plan, "CUBIN_PART_MIN_BYTES", 0)
    monkeypatch.setattr(worker_pool, "count_forkable_cores", lambda: 2)
    monkeypatch.setattr(input_index, "read_modules", fail_if_any_path)
    shared = replace(options, jobs=2, cache_folder=tmp_path)
    assert render_json(analyze_files([str(LIBRARY)], "a100", shared)) == whole
    monkeypatch.setattr(worker_pool, "run_in_forks", lambda *_: pytest.fail("a process"))
    assert render_json(analyze_files([str(LIBRARY)], "a100", shared)) == whole


def test_a_cubin_without_parts_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(models=("roofline",))
    whole = render_json(analyze_files([str(LIBRARY)], "a100", options))
    monkeypatch.setattr(analysis_plan, "CUBIN_PART_MIN_BYTES", 0)
    monkeypatch.setattr(worker_pool, "count_forkable_cores", lambda: 2)
    monkeypatch.setattr("analyzer.frontend.cubin_parts._MAX_SECTIONS", 3)
    assert render_json(analyze_files([str(LIBRARY)], "a100", replace(options, jobs=2))) == whole
