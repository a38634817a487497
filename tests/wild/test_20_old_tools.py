"""Text of tools that are older than the code: what they print beside it is dropped, what is left unread unknown."""

from pathlib import Path

import pytest

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.frontend.cuda_tools import CudaTool, find_tools, query_version
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import KernelReport
from analyzer.text.errors import ToolError

# cuobjdump 12.8 of traces/cuda/arithmetic.cu by nvcc 13.0 for sm_120: `MOV R3, R4   &req={0}   ?trans1;`
DUMP = Path(__file__).parent / "20-old-tools" / "cuobjdump_12.8_120.sass"
OLD_CUBIN = DUMP.parent / "thread_id_70.cubin"  # one store of threadIdx.x, by ptxas 12.8
NO_TOOLS = "cuobjdump and nvdisasm are not installed here"


def analyze(path: Path, kernel: str) -> KernelReport:
    launch = Launch(grid=Dim3(64), block=Dim3(256), arguments=(parse_argument("2=7"),))
    options = Options(launch=launch, kernels=(kernel,))
    (report,) = analyzer.analyze(str(path), "rtx-5090", options=options).kernels
    return report


@pytest.mark.parametrize(("kernel", "flops"), [("thread_sum", 31), ("quantize", 1), ("divide", 0)])
def test_control_codes_behind_an_instruction_are_no_operands(kernel: str, flops: int) -> None:
    report = analyze(DUMP, kernel)
    assert report.coverage == 1.0
    assert not report.missing_code
    assert report.flops == 32 * flops
    assert report.has_control_codes


def test_operands_that_nobody_understands_are_unknown_code(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.sass"
    text = DUMP.read_text()
    assert "FADD" in text
    damaged.write_text(text.replace("FADD R", "FADD {R"))
    report = analyze(damaged, "thread_sum")
    assert report.coverage < 1.0
    assert report.counts.provenance != "exact"
    assert any("operands that are not understood" in sentence for sentence in report.missing_code)
    assert report.unknowns[0].what == "code"


def test_a_cubin_for_sm_70_is_read_or_the_message_names_a_way() -> None:
    """CUDA 13.1 and later refuse sm_70; 12.8, which is in Triton's wheel of release 3.4, prints it."""
    if not find_tools("nvdisasm"):
        pytest.skip(NO_TOOLS)
    releases = [_parse_release(query_version(tool)) for tool in find_tools("nvdisasm")]
    if min(releases) < (13, 1):
        (kernel,) = analyzer.analyze(str(OLD_CUBIN), "v100").kernels
        assert (kernel.architecture, kernel.instructions, kernel.coverage) == ("sm_70", 8, 1.0)
        return
    with pytest.raises(ToolError) as caught:
        analyzer.analyze(str(OLD_CUBIN), "v100")
    assert "triton==3.4.0" in caught.value.diagnostic.hint


def _parse_release(tool: CudaTool) -> tuple[int, ...]:
    return tuple(map(int, tool.version.split(".")))
