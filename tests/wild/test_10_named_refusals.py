"""Case 10: each input that holds no code that is read is named for what it is, with the way to code."""

from pathlib import Path

import pytest

from analyzer.cli.app import run
from analyzer.frontend.module_reader import read_module
from analyzer.text.errors import InputError

LIST = """
Fatbin elf code:
================
arch = sm_80
code version = [1,8]
host = linux
compile_size = 64bit

Fatbin ptx code:
================
arch = sm_90
code version = [9,0]
host = linux
compile_size = 64bit
compressed
ptxasOptions =
"""
LTO = LIST.replace("elf", "nvvm").replace("ptx code", "nvvm code").replace("ptxasOptions", "nvvmOptions")
PAIRED = """
	.target	sm_61
	.section	.text.k,"ax",@progbits
.text.k:
        /*0008*/                   MOV R1, c[0x0][0x20]         ;
        /*0010*/         {         S2R R0, SR_TID.X         ;
        /*0018*/                   S2R R2, SR_CTAID.X         }
        /*0028*/                   EXIT         ;
"""
NO_HEADER_PAIR = "/*0010*/  {  S2R R0, SR_TID.X ;\n/*0018*/  S2R R2, SR_CTAID.X }\n"
TRACE = """-kernel name = incr
-kernel id = 5
-grid dim = (1,1,1)
-block dim = (32,1,1)
-shmem = {shared}
-nregs = {registers}
-binary version = {version}
-cuda stream id = 0
-shmem base_addr = 0x00007f59dd000000
-local mem base_addr = 0x00007f59db000000
-nvbit version = 1.7.6
-accelsim tracer version = 5
-enable lineinfo = 0

#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses] immediate

#BEGIN_TB

thread block = 0,0,0

warp = 0
insts = 3
0000 ffffffff 1 R2 IMAD.WIDE 2 R0 R9 0 0
0010 ffffffff 1 R4 LDG.E.SYS 1 R2 4 1 0x7f580face400 4 0
0020 ffffffff 0 EXIT 0 0 0

#END_TB
"""


def elf(os_abi: int, flags: int) -> bytes:
    """The header of a cubin."""
    head = b"\x7fELF\x02\x01\x01" + bytes([os_abi]) + bytes(8) + b"\2\0" + (190).to_bytes(2, "little")
    return head + bytes(28) + flags.to_bytes(4, "little") + bytes(12)


@pytest.mark.parametrize(
    ("content", "says", "hint"),
    [
        (LIST, "a list of what a file holds", "cuobjdump -sass"),
        (LTO, "link-time optimization", "link it first"),
        (LIST.replace("elf", "ptx"), "only PTX", "ptxas"),
        ("ELF file    1: v.1.sm_80.cubin\nELF file    2: v.2.sm_90.cubin\n", "cuobjdump's list", "cuobjdump -sass"),
        ("PTX file    1: v.1.sm_80.ptx\n", "cuobjdump's list", "cuobjdump -sass"),
        ("SASS text section 1 : x-_Z1kPf.sm_80.elf.bin\n", "cuobjdump's list", "cuobjdump -sass"),
        (" Function k:\n  REG:8 STACK:0 SHARED:0\n", "resource usage", "--res-usage"),
        ("ptxas info    : Used 8 registers, 360 bytes cmem[0]\n", "resource usage", "--res-usage"),
        ("digraph f {\nsubgraph \"cluster_k\" {\n}\n}\n", "control-flow graph", "nvdisasm -c"),
        ("; ModuleID = 'k'\ndefine void @k() {\n}\n", "LLVM", "cubin"),
        ("#include <cuda.h>\n__global__ void k() {}\n", "CUDA source", "nvcc"),
        ('{"kernels": {"k": {"grid": [4]}}}', "JSON that holds no code", "--launch"),
        ('{"hash": "0", "num_warps": 4, "shared": 0, "name": "k"}', "Triton's metadata", ".cubin"),
        ('"ID","Process ID","Kernel Name","Metric Name"\n"0","1","k","cycles"\n', "without the code", "--page source"),
        (b"NVR\0" + bytes(40), "report of Nsight Compute", "--page source --csv"),
        (b"PK\3\4" + bytes(40), "zip archive", "unpack"),
        (PAIRED, "sm_61 code: encodings before sm_70", "compile for sm_70"),
        (NO_HEADER_PAIR, "encodings before sm_70", "compile for sm_70"),
        ('[{"SM":{"version":{"major":6,"minor":1}}},[{"function-name":"k","sass-instructions":[{"opcode":"EXIT"}]}]]',
         "sm_61 code", "compile for sm_70"),
        (elf(0x33, 0x3D053D), "sm_61 code", "compile for sm_70"),
        (elf(0x41, 0x6003D04), "sm_61 code", "compile for sm_70"),
        (elf(0x33, 0x320532), "sm_50 code", "compile for sm_70"),
    ],
)  # fmt: skip
def test_what_it_is_and_what_to_do(tmp_path: Path, content: str | bytes, says: str, hint: str) -> None:
    path = tmp_path / "input"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_module(str(path))
    assert says in str(caught.value)
    assert hint in caught.value.diagnostic.hint


TABLES = "64bit elf: type=2, abi=8, sm=80\n" + "        .section .nv.info\n" * 4000
USAGE = "Resource usage:\n" + " Function k:\n  REG:8 STACK:0 SHARED:0 LOCAL:0\n" * 3000
CODE = "\tcode for sm_80\n\t\tFunction : k\n        /*0000*/                   EXIT ;\n"


@pytest.mark.parametrize(
    ("text", "says"), [(TABLES, "tables or headers without code"), (USAGE, "resource usage")]
)
def test_code_behind_long_tables_is_found(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "k.txt"
    path.write_text(text + CODE)
    assert [kernel.name for kernel in read_module(str(path))] == ["k"]
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_module(str(path))


def test_old_code_beside_new_code_is_left_out_with_a_warning(tmp_path: Path) -> None:
    new = '\t.section\t.text.n,"ax",@progbits\n        /*0000*/                   EXIT ;\n'
    path = tmp_path / "both.txt"
    path.write_text(PAIRED + "\t.target\tsm_80\n" + new)
    module = read_module(str(path))
    assert [kernel.name for kernel in module] == ["n"]
    assert [(d.code, d.count) for d in module.diagnostics] == [("unsupported-architecture", 4)]


@pytest.mark.parametrize(
    ("header", "warned", "registers", "arch"),
    [
        ({"registers": 21955, "version": 0, "shared": 1}, ["nregs = 21955"], "10 registers (from code)", "?"),
        ({"registers": 0, "version": 0, "shared": 0}, [], "10 registers (from code)", "?"),
        ({"registers": 32, "version": 12345, "shared": 0}, ["binary version = 12345"], "32 registers", "?"),
        (
            {"registers": 32, "version": 80, "shared": 1 << 40},
            [f"shmem = {1 << 40}"],
            "32 registers",
            "sm_80",
        ),
        ({"registers": 32, "version": 80, "shared": 0}, [], "32 registers", "sm_80"),
    ],
)
def test_nonsense_in_a_trace_header(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    header: dict[str, int],
    warned: list[str],
    registers: str,
    arch: str,
) -> None:
    path = tmp_path / "k.traceg"
    path.write_text(TRACE.format(**header))
    assert run(["analyze", str(path), "-g", "a100"]) == 0
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert registers in text
    assert ("architecture ?" if arch == "?" else arch) in text
    assert [line for line in warned if line in text] == warned
    assert ("which no kernel has" in text) is bool(warned)
    assert "does not fit" not in text


def test_a_trace_without_architecture_takes_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "k.traceg"
    path.write_text(TRACE.format(registers=32, version=0, shared=0))
    assert run(["analyze", str(path), "--arch", "sm_86"]) == 0
    assert "sm_86" in capsys.readouterr().out
