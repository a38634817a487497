"""What opcodes and their modifiers mean: a table of mnemonics, and the closed forms of matrix fragments."""

from pathlib import Path

import pytest
from paths import TRACES, parse_lines

from analyzer.frontend.module_reader import read_module
from analyzer.ir.opcode import AddressSpace, OpKind, Semantics
from analyzer.ir.scheduling import SchedClass, TensorRate
from analyzer.isa.mma_shapes import DEFAULT_TCGEN05_TILE_M, DEFAULT_TCGEN05_TILE_N, load_mma_table
from analyzer.isa.opcode_table import load_opcode_table, resolve_opcode
from analyzer.text.errors import HardwareError

# mnemonic -> kind, scheduling class, bytes a lane moves, operations of a lane
MEANINGS = [
    ("FFMA", "float", "fp32", 0, 2),
    ("FADD.FTZ", "float", "fp32", 0, 1),
    ("FMUL.RZ", "float", "fp32", 0, 1),
    ("FFMA2", "float", "fp32_packed", 0, 4),
    ("FMNMX", "float", "fp32_compare", 0, 0),
    ("FSETP.GEU.AND", "predicate", "fp32_compare", 0, 0),
    ("MUFU.EX2", "special_function", "special_function", 0, 1),
    ("HFMA2.BF16_V2", "half", "fp16", 0, 4),
    ("HFMA2.MMA", "half", "fp16_mma_pipe", 0, 4),
    ("HADD2.F32", "half", "fp16", 0, 2),
    ("HSETP2.GT.AND", "predicate", "fp16_compare", 0, 0),
    ("DFMA", "double", "fp64", 0, 2),
    ("DADD", "double", "fp64", 0, 1),
    ("F2FP.BF16.F32.PACK_AB", "convert", "pack_convert", 0, 0),
    ("I2F.F32.S32", "convert", "convert", 0, 0),
    ("F2F.F64.F32", "convert", "convert_64", 0, 0),
    ("F2I.S64.TRUNC", "convert", "convert_64", 0, 0),
    ("IADD3", "integer", "int_add", 0, 0),
    ("VIADD", "integer", "int_add", 0, 0),
    ("IMAD", "integer", "int_mul", 0, 0),
    ("IMAD.MOV.U32", "move", "int_mul", 0, 0),
    ("IMAD.WIDE.U32", "integer", "int_mul_wide", 0, 0),
    ("IMAD.HI", "integer", "int_mul_wide", 0, 0),
    ("IDP.4A.S8.S8", "integer", "int_mul", 0, 8),
    ("LOP3.LUT", "integer", "int_logic", 0, 0),
    ("SHF.R.S32.HI", "integer", "int_logic", 0, 0),
    ("ISETP.GE.AND", "predicate", "int_logic", 0, 0),
    ("VIMNMX", "integer", "int_minmax", 0, 0),
    ("POPC", "integer", "bit_count", 0, 0),
    ("MOV", "move", "int_logic", 0, 0),
    ("SHFL.BFLY", "shuffle", "shuffle", 0, 0),
    ("VOTE.ANY", "vote", "vote", 0, 0),
    ("MATCH.ANY", "vote", "match", 0, 0),
    ("REDUX.SUM", "shuffle", "redux", 0, 0),
    ("S2R", "special_register", "special_register", 0, 0),
    ("CS2R", "special_register", "special_register_fast", 0, 0),
    ("R2UR", "move", "to_uniform", 0, 0),
    ("UIADD3", "integer", "uniform", 0, 0),
    ("UFFMA", "float", "uniform_float", 0, 2),
    ("LDC.64", "load", "constant_load", 8, 0),
    ("ULDC", "load", "uniform_constant_load", 4, 0),
    ("LDCU.128", "load", "uniform_constant_load_async", 16, 0),
    ("LDG.E", "load", "global_load", 4, 0),
    ("LDG.E.U8", "load", "global_load", 1, 0),
    ("LDG.E.S16.CONSTANT", "load", "global_load", 2, 0),
    ("LDG.E.LTC128B.64.CONSTANT", "load", "global_load", 8, 0),
    ("LDG.E.128", "load", "global_load", 16, 0),
    ("LDG.E.ENL2.256", "load", "global_load", 32, 0),
    ("STG.E.U16", "store", "global_store", 2, 0),
    ("LDS.128", "load", "shared_load", 16, 0),
    ("STS.64", "store", "shared_store", 8, 0),
    ("LDSM.16.M88.4", "load", "shared_matrix", 16, 0),
    ("LDSM.16.MT88.2", "load", "shared_matrix", 8, 0),
    ("LDSM.16.M88", "load", "shared_matrix", 4, 0),
    ("LDL.LU", "load", "local_load", 4, 0),
    ("LDGSTS.E.BYPASS.LTC128B.128", "async_copy", "async_copy", 16, 0),
    ("ATOMG.E.ADD.64.STRONG.GPU", "atomic", "global_atomic", 8, 0),
    ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", "reduction", "global_reduction", 4, 1),
    ("REDG.E.ADD.F32x4.FTZ.RN.STRONG.GPU", "reduction", "global_reduction", 16, 4),
    ("ATOMS.POPC.INC.32", "atomic", "shared_atomic", 4, 0),
    ("ATOMS.ARRIVE.64", "barrier", "mbarrier", 0, 0),
    ("LDTM.x32", "load", "tensor_memory_load", 128, 0),
    ("LDTM.16dp256bit.x2", "load", "tensor_memory_load", 32, 0),
    ("STTM.x16", "store", "tensor_memory_store", 64, 0),
    ("UTMALDG.2D", "bulk_copy", "bulk_copy", 0, 0),
    ("UTMAPF.L2.2D", "prefetch", "bulk_copy", 0, 0),
    ("MEMBAR.SC.GPU", "fence", "fence", 0, 0),
    ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "barrier", "mbarrier", 0, 0),
    ("BAR.SYNC.DEFER_BLOCKING", "barrier", "cta_barrier", 0, 0),
    ("UCGABAR_ARV", "barrier", "cluster_barrier", 0, 0),
    ("WARPGROUP.ARRIVE", "control", "warpgroup_control", 0, 0),
    ("DEPBAR.LE", "control", "frontend", 0, 0),
    ("NOP", "nop", "frontend", 0, 0),
    ("BRA.U", "branch", "branch", 0, 0),
    ("BRXU", "branch_indirect", "branch_indirect", 0, 0),
    ("BSSY.RECONVERGENT", "convergence_open", "convergence", 0, 0),
    ("BSYNC", "convergence_wait", "convergence", 0, 0),
    ("CALL.REL.NOINC", "call", "branch", 0, 0),
    ("RET.REL.NODEC", "return", "branch", 0, 0),
    ("EXIT", "exit", "branch", 0, 0),
    ("PREEXIT", "control", "branch", 0, 0),
    ("TEX.SCR.LL", "texture", "texture", 0, 0),
]


@pytest.mark.parametrize(("mnemonic", "kind", "sched", "width_bytes", "flops"), MEANINGS)
def test_meaning(mnemonic: str, kind: str, sched: str, width_bytes: int, flops: int) -> None:
    opcode = resolve_opcode(mnemonic)
    assert opcode.is_known
    assert (opcode.kind, opcode.sched_class) == (OpKind(kind), SchedClass(sched))
    assert (opcode.width_bytes, opcode.flops) == (width_bytes, flops)
    assert opcode.mma_shape is None
    assert opcode.mnemonic == mnemonic


SPACES = [
    ("LDG.E", AddressSpace.GLOBAL),
    ("LDS", AddressSpace.SHARED),
    ("LDL", AddressSpace.LOCAL),
    ("LD.E", AddressSpace.GENERIC),
    ("LDC", AddressSpace.CONSTANT),
    ("STAS", AddressSpace.DISTRIBUTED_SHARED),
    ("LDTM.x1", AddressSpace.TENSOR),
    ("TEX", AddressSpace.TEXTURE),
    ("IADD3", None),
]


@pytest.mark.parametrize(("mnemonic", "space"), SPACES)
def test_address_space(mnemonic: str, space: AddressSpace | None) -> None:
    assert resolve_opcode(mnemonic).space is space


# mnemonic -> m, n, k, rate, accumulator bits, warps
SHAPES = [
    ("HMMA.1688.F32", 16, 8, 8, TensorRate.F16, 32, 1),
    ("HMMA.16816.F32", 16, 8, 16, TensorRate.F16, 32, 1),
    ("HMMA.16816.F32.BF16", 16, 8, 16, TensorRate.BF16, 32, 1),
    ("HMMA.16816.F16", 16, 8, 16, TensorRate.F16_ACC16, 16, 1),
    ("HMMA.1688.F32.TF32", 16, 8, 8, TensorRate.TF32, 32, 1),
    ("HMMA.1684.F32.TF32", 16, 8, 4, TensorRate.TF32, 32, 1),
    ("IMMA.8816.S8.S8", 8, 8, 16, TensorRate.INT8, 32, 1),
    ("IMMA.16832.S8.S8.SAT", 16, 8, 32, TensorRate.INT8, 32, 1),
    ("IMMA.16832.U8.S8", 16, 8, 32, TensorRate.INT8, 32, 1),
    ("IMMA.16864.S4.S4", 16, 8, 64, TensorRate.INT4, 32, 1),
    ("BMMA.168256.XOR.POPC", 16, 8, 256, TensorRate.BINARY, 32, 1),
    ("DMMA.884", 8, 8, 4, TensorRate.F64, 64, 1),
    ("DMMA.16816", 16, 8, 16, TensorRate.F64, 64, 1),
    ("QMMA.16832.F32.E4M3.E4M3", 16, 8, 32, TensorRate.FP8, 32, 1),
    ("QMMA.16832.F16.E5M2.E4M3", 16, 8, 32, TensorRate.FP8_ACC16, 16, 1),
    ("QMMA.16832.F32.E2M1.E2M1", 16, 8, 32, TensorRate.FP6, 32, 1),
    ("QMMA.16832.F16.E3M2.E3M2", 16, 8, 32, TensorRate.FP6, 16, 1),
    ("QMMA.SF.16832.F32.E4M3.E4M3.E8", 16, 8, 32, TensorRate.FP8_SCALED, 32, 1),
    ("QMMA.SF.16832.F32.E4M3.E2M1.E8", 16, 8, 32, TensorRate.FP8_SCALED, 32, 1),
    ("QMMA.SF.16832.F32.E3M2.E2M3.E8", 16, 8, 32, TensorRate.FP6, 32, 1),
    ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", 16, 8, 64, TensorRate.FP4, 32, 1),
    ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", 16, 8, 64, TensorRate.FP4, 32, 1),
    ("HGMMA.64x128x16.F32", 64, 128, 16, TensorRate.F16, 32, 4),
    ("HGMMA.64x256x16.F32.BF16", 64, 256, 16, TensorRate.BF16, 32, 4),
    ("HGMMA.64x64x16.F16", 64, 64, 16, TensorRate.F16_ACC16, 16, 4),
    ("HGMMA.64x64x8.F32.TF32", 64, 64, 8, TensorRate.TF32, 32, 4),
    ("QGMMA.64x128x32.F32.E4M3.E4M3", 64, 128, 32, TensorRate.FP8, 32, 4),
    ("IGMMA.64x16x32.S8.S8", 64, 16, 32, TensorRate.INT8, 32, 4),
]


@pytest.mark.parametrize(("mnemonic", "m", "n", "k", "rate", "bits", "warps"), SHAPES)
def test_matrix_shape(mnemonic: str, m: int, n: int, k: int, rate: TensorRate, bits: int, warps: int) -> None:
    opcode = resolve_opcode(mnemonic)
    shape = opcode.mma_shape
    assert shape is not None
    assert opcode.kind is OpKind.MMA
    assert (shape.m, shape.n, shape.k) == (m, n, k)
    assert (shape.tensor_rate, shape.accumulator_bits, shape.n_warps) == (rate, bits, warps)
    assert not shape.is_sparse


FMA_COUNTS = [
    ("HMMA.16816.F32", 2048),
    ("HMMA.1688.F32", 1024),
    ("IMMA.16832.S8.S8", 4096),
    ("DMMA.884", 256),
    ("HGMMA.64x128x16.F32", 131072),
    ("HGMMA.64x256x16.F32.BF16", 262144),
    ("QGMMA.64x128x32.F32.E4M3.E4M3", 262144),
    ("UTCHMMA", 128 * 256 * 16),
    ("UTCQMMA", 128 * 256 * 32),
    ("UTCOMMA", 128 * 256 * 64),
]


@pytest.mark.parametrize(("mnemonic", "count"), FMA_COUNTS)
def test_multiply_adds(mnemonic: str, count: int) -> None:
    shape = resolve_opcode(mnemonic).mma_shape
    assert shape is not None
    assert shape.n_fmas == count


def test_sparse_product_is_marked_and_counts_the_whole_k() -> None:
    shape = resolve_opcode("HMMA.SP.16832.F32").mma_shape
    assert shape is not None
    assert (shape.is_sparse, shape.n_fmas) == (True, 4096)


def test_tile_of_a_tensor_core_product_is_the_largest() -> None:
    shape = resolve_opcode("UTCHMMA.2CTA").mma_shape
    assert shape is not None
    assert (shape.m, shape.n) == (DEFAULT_TCGEN05_TILE_M, DEFAULT_TCGEN05_TILE_N)


@pytest.mark.parametrize("mnemonic", ["HMMA.884.F32.F32.STEP0", "HMMA.884.F32.F32.STEP3"])
def test_volta_product(mnemonic: str) -> None:
    shape = resolve_opcode(mnemonic).mma_shape
    assert shape is not None
    assert (shape.m, shape.n, shape.k, shape.tensor_rate) == (8, 8, 4, TensorRate.F16)


SEMANTICS = [
    ("ISETP.GE.AND", Semantics.INT_COMPARE),
    ("UISETP.NE.U32.AND", Semantics.INT_COMPARE),
    ("IADD3", Semantics.INT_ADD),
    ("UIADD3", Semantics.INT_ADD),
    ("IMAD.MOV.U32", Semantics.INT_MAD),
    ("MOV", Semantics.MOVE),
    ("CS2R", Semantics.SPECIAL_MOVE),
    ("HFMA2.MMA", Semantics.HALF_FMA),
    ("DEPBAR.LE", Semantics.WAIT_SCOREBOARD),
    ("WARPGROUP.DEPBAR.LE", Semantics.WAIT_WARPGROUP),
    ("ATOMS.ARRIVE.64", Semantics.MBARRIER_ARRIVE),
    ("NANOSLEEP", Semantics.SLEEP),
    ("HMMA", None),
]


@pytest.mark.parametrize(("mnemonic", "semantics"), SEMANTICS)
def test_semantics(mnemonic: str, semantics: Semantics | None) -> None:
    assert resolve_opcode(mnemonic).semantics is semantics


@pytest.mark.parametrize("mnemonic", ["ZZADD", "ZZADD.X2.64", "QQMMA.16816.F32"])
def test_an_unknown_opcode_degrades(mnemonic: str) -> None:
    opcode = resolve_opcode(mnemonic)
    assert not opcode.is_known
    assert (opcode.kind, opcode.sched_class) == (OpKind.UNKNOWN, SchedClass.UNKNOWN)
    assert (opcode.width_bytes, opcode.flops, opcode.mma_shape, opcode.space) == (0, 0, None, None)
    assert opcode.mnemonic == mnemonic


def test_unknown_modifiers_do_not_make_an_opcode_unknown() -> None:
    assert resolve_opcode("LDG.E.SOMETHING_NEW.128").is_known
    assert resolve_opcode("LDG.E.SOMETHING_NEW.128").width_bytes == 16


def test_every_row_of_the_table_resolves() -> None:
    for name, row in load_opcode_table().opcode.items():
        opcode = resolve_opcode(name)
        assert opcode.is_known, name
        assert (opcode.mma_shape is not None) == (opcode.kind is OpKind.MMA), name
        for rule in row.when:
            assert resolve_opcode(
                ".".join((name, *rule.has, *rule.first, *rule.any[:1], *rule.last[:1]))
            ).is_known


def test_every_family_of_matrix_instructions_is_in_the_opcode_table() -> None:
    kinds = {name: row.kind for name, row in load_opcode_table().opcode.items()}
    assert {name for name, kind in kinds.items() if kind is OpKind.MMA} == set(load_mma_table().families)


# ---- fragments: m x k, k x n and m x n elements over the lanes of a warp ------------------------

FRAGMENTS = [
    ("HMMA.1688.F32", 16),
    ("HMMA.16816.F32", 16),
    ("HMMA.16816.F32.BF16", 16),
    ("HMMA.16816.F16", 16),
    ("HMMA.1688.F32.TF32", 32),
    ("IMMA.16832.S8.S8", 8),
    ("IMMA.16864.S4.S4", 4),
    ("BMMA.168256.XOR.POPC", 1),
    ("DMMA.884", 64),
    ("DMMA.1688", 64),
    ("DMMA.16816", 64),
    ("QMMA.16832.F32.E4M3.E4M3", 8),
    ("QMMA.16832.F16.E4M3.E4M3", 8),
    ("QMMA.16832.F32.E3M2.E3M2", 8),
    ("QMMA.SF.16832.F32.E4M3.E4M3.E8", 8),
]


@pytest.mark.parametrize(("mnemonic", "bits"), FRAGMENTS)
def test_fragments_have_the_registers_that_their_elements_need(mnemonic: str, bits: int) -> None:
    """Operands lie 50 registers apart, so the registers read tell which operand they belong to."""
    shape = resolve_opcode(mnemonic).mma_shape
    assert shape is not None
    form = parse_lines(f"{mnemonic} R0, R50, R100, R150").decode_form(0)
    per_register = 32 * 32
    d = shape.m * shape.n * shape.accumulator_bits // per_register
    a, b = shape.m * shape.k * bits // per_register, shape.n * shape.k * bits // per_register
    assert form.defs == tuple(range(d))
    wanted = [*range(50, 50 + a), *range(100, 100 + b), *range(150, 150 + d)]
    assert list(form.uses) == wanted


@pytest.mark.parametrize("n", [8, 64, 128, 256])
@pytest.mark.parametrize(("accumulator", "bits"), [("F32", 32), ("F16", 16)])
def test_a_warpgroup_s_accumulator_is_spread_over_128_lanes(n: int, accumulator: str, bits: int) -> None:
    form = parse_lines(f"HGMMA.64x{n}x16.{accumulator} R24, gdesc[UR4], R24", arch="sm_90a").decode_form(0)
    registers = 64 * n * bits // (128 * 32)
    assert form.defs == tuple(range(24, 24 + registers))
    assert [number for number in form.uses if number < 256] == list(form.defs)


TENSOR_MEMORY = [
    # rows x bits a row x repeats, over 32 lanes of 32 bits (PTX ISA, tcgen05.ld)
    ("LDTM.x1", 1), ("LDTM.x64", 64), ("LDTM.32dp32bit.x16", 16), ("LDTM.16dp64bit.x8", 8),
    ("LDTM.16dp128bit.x1", 2), ("LDTM.16dp128bit.x8", 16), ("LDTM.16dp256bit.x1", 4), ("LDTM.16dp256bit.x8", 32),
]  # fmt: skip


@pytest.mark.parametrize(("mnemonic", "registers"), TENSOR_MEMORY)
def test_registers_of_a_tensor_memory_load(mnemonic: str, registers: int) -> None:
    form = parse_lines(f"{mnemonic} R4, tmem[UR4]", arch="sm_100a").decode_form(0)
    assert form.defs == tuple(range(4, 4 + registers))
    assert form.opcode.width_bytes == 4 * registers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'schema = "warplens/isa/1"\nopcode.EXIT = {kind = "exits", sched = "branch"}',
            "Invalid enum value 'exits'",
        ),
        ("schema = ", "Invalid value"),
        (None, "No such file"),
    ],
)
def test_a_wrong_table_is_blamed_and_not_the_dump(
    text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.isa.table_files.find_data_folder", lambda kind: tmp_path / kind)
    table = tmp_path / "hwdb" / "isa" / "opcodes.toml"
    table.parent.mkdir(parents=True)
    if text is not None:
        table.write_text(text + "\n[width_modifiers]\n")
    load_opcode_table.cache_clear()
    resolve_opcode.cache_clear()
    try:
        with pytest.raises(HardwareError, match=said) as refused:
            read_module(str(TRACES / "cuda" / "sm_80" / "report16.sass"))
    finally:
        load_opcode_table.cache_clear()
        resolve_opcode.cache_clear()
    assert str(refused.value).startswith(f"{table}: ")
