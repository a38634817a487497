"""Which registers and predicates an instruction writes and reads."""

import pytest
from paths import parse_lines

from analyzer.ir.operand import Register, RegisterFile
from analyzer.isa.register_operands import N_REGISTER_UNITS, find_register_unit, format_register_unit

# text -> written, read
ROLES = [
    ("MOV R1, R2", "R1", "R2"),
    ("MOV RZ, R2", "", "R2"),
    ("MOV R1, c[0x0][0x28]", "R1", ""),
    ("@P0 MOV R1, R2", "R1", "P0 R2"),
    ("@!UP3 UMOV UR4, UR5", "UR4", "UP3 UR5"),
    ("IADD3 R5, P0, R14, R7, RZ", "R5 P0", "R14 R7"),
    ("IADD3 R18, P0, P1, R3, R4, R5", "R18 P0 P1", "R3 R4 R5"),
    ("IADD3.X R19, R3, R4, RZ, P0, P1", "R19", "R3 R4 P0 P1"),
    ("IADD3.X R19, P2, R3, R4, RZ, P0, !PT", "R19 P2", "R3 R4 P0"),
    ("LEA R6, P0, R0, c[0x0][0x168], 0x2", "R6 P0", "R0"),
    ("LEA.HI.X R7, R0, c[0x0][0x16c], R9, 0x2, P0", "R7", "R0 R9 P0"),
    ("IMAD.WIDE R2, R3, 0x4, R4", "R2 R3", "R3 R4 R5"),
    ("IMAD.WIDE.U32 R2, P1, R3, R6, R4", "R2 R3 P1", "R3 R6 R4 R5"),
    ("ISETP.GE.AND P0, PT, R2, R3, PT", "P0", "R2 R3"),
    ("ISETP.LT.OR P1, P2, R2, RZ, !P3", "P1 P2", "R2 P3"),
    ("FSEL R2, R3, R4, P0", "R2", "R3 R4 P0"),
    ("FMNMX R2, R3, R4, !PT", "R2", "R3 R4"),
    ("LOP3.LUT P0, RZ, R2, 0x1, RZ, 0xc0, !PT", "P0", "R2"),
    ("PLOP3.LUT P0, P1, P2, P3, PT, 0x80, 0x8", "P0 P1", "P2 P3"),
    ("R2P PR, R0, 0x7f", "P0 P1 P2 P3 P4 P5 P6", "R0"),
    ("P2R R4, PR, RZ, 0x7f", "R4", "P0 P1 P2 P3 P4 P5 P6"),
    ("R2P PR, R0.B1, 0x28", "P3 P5", "R0"),
    ("P2R R4, PR, RZ, 0x41", "R4", "P0 P6"),
    ("@P1 P2R R4, PR, R4, 0x8", "R4", "P1 P3 R4"),
    ("SHFL.IDX P1, R5, R4, R6, R7", "P1 R5", "R4 R6 R7"),
    ("VOTE.ANY R5, P1, P0", "R5 P1", "P0"),
    ("VOTE.ALL P1, P0", "P1", "P0"),
    ("R2UR UR4, R5", "UR4", "R5"),
    ("S2R R0, SR_TID.X", "R0", ""),
    ("CS2R R2, SR_CLOCKLO", "R2 R3", ""),
    ("DFMA R2, R4, R6, R8", "R2 R3", "R4 R5 R6 R7 R8 R9"),
    ("DSETP.GT.AND P0, PT, R2, R4, PT", "P0", "R2 R3 R4 R5"),
    ("F2F.F32.F64 R2, R4", "R2", "R4 R5"),
    ("F2F.F64.F32 R2, R4", "R2 R3", "R4"),
    ("MUFU.RCP R2, R4", "R2", "R4"),
    ("LDG.E R2, [R4.64]", "R2", "R4 R5"),
    ("LDG.E R2, [R4]", "R2", "R4 R5"),
    ("LDG.E.64 R2, desc[UR6][R4.64+0x8]", "R2 R3", "UR6 UR7 R4 R5"),
    ("LDG.E.128 P0, R8, desc[UR6][R4.64]", "P0 R8 R9 R10 R11", "UR6 UR7 R4 R5"),
    ("LDG.E.ENL2.256 R16, R8, desc[UR4][R2.64]", "R16 R17 R18 R19 R8 R9 R10 R11", "UR4 UR5 R2 R3"),
    ("STG.E.64 [R4.64+UR6], R2", "", "R4 R5 UR6 UR7 R2 R3"),
    ("STS.128 [R4], R8", "", "R4 R8 R9 R10 R11"),
    ("LDS.U16 R2, [R4+UR5+0x10]", "R2", "R4 UR5"),
    ("LDSM.16.MT88.4 R8, [R4]", "R8 R9 R10 R11", "R4"),
    ("LDGSTS.E.128 [R4], desc[UR6][R2.64], !P0", "", "R4 UR6 UR7 R2 R3 P0"),
    ("ATOMG.E.ADD.STRONG.GPU PT, R5, desc[UR4][R2.64], R7", "R5", "UR4 UR5 R2 R3 R7"),
    ("ATOMS.CAS R5, [R2], R6, R7", "R5", "R2 R6 R7"),
    ("RED.E.ADD.STRONG.GPU [R2.64], R7", "", "R2 R3 R7"),
    ("LDC.64 R2, c[0x0][R4+0x10]", "R2 R3", "R4"),
    ("HMMA.16816.F32 R4, R8, R12, RZ", "R4 R5 R6 R7", "R8 R9 R10 R11 R12 R13"),
    ("FFMA2 R4, R6.F32x2.HI_LO, R8.F32, R10.F32x2.HI_LO", "R4 R5", "R6 R7 R8 R10 R11"),
    ("BRX R4 -0x10", "", "R4 R5"),
    ("BRA.U !UP0, 0x10", "", "UP0"),
    ("RET.REL.NODEC R2 0x0", "", "R2 R3"),
    ("WARPSYNC.COLLECTIVE R3, 0x10", "", "R3"),
    ("BAR.SYNC.DEFER_BLOCKING R1, 0x40", "", "R1"),
    ("MOV R254, R253", "R254", "R253"),
    ("UTMALDG.2D [UR8], [UR4]", "", "UR8 UR4"),
]


@pytest.mark.parametrize(("text", "written", "read"), ROLES)
def test_roles(text: str, written: str, read: str) -> None:
    form = parse_lines(text).decode_form(0)
    assert [format_register_unit(number) for number in form.defs] == written.split()
    assert [format_register_unit(number) for number in form.uses] == read.split()


def test_a_256_bit_store_reads_two_groups_of_four() -> None:
    form = parse_lines("STG.E.NA.EFL2.256 desc[UR4][R2.64], R8, R16", arch="sm_100").decode_form(0)
    names = [format_register_unit(number) for number in form.uses]
    assert names[4:] == ["R8", "R9", "R10", "R11", "R16", "R17", "R18", "R19"]


def test_packed_tensor_memory_load_has_one_width() -> None:
    form = parse_lines("LDTM.x32.PACK16BIT R4, tmem[UR4]", arch="sm_100a").decode_form(0)
    assert form.opcode.width_bytes == 4 * len(form.defs)


def test_storage_numbers_have_distinct_names() -> None:
    names = [format_register_unit(number) for number in range(N_REGISTER_UNITS)]
    used = [n for n in names if n not in ("R255", "UR63", "P7", "UP7")]
    assert len(set(used)) == len(used)


@pytest.mark.parametrize(("file", "index"), [("R", 0), ("R", 254), ("UR", 0), ("UR", 62)])
def test_storage_of_a_register_is_named_like_it(file: str, index: int) -> None:
    assert format_register_unit(find_register_unit(Register(RegisterFile(file), index))) == f"{file}{index}"


def test_zero_registers_hold_nothing() -> None:
    assert find_register_unit(Register(RegisterFile.GENERAL, None)) == -1
    assert find_register_unit(Register(RegisterFile.UNIFORM, None)) == -1
