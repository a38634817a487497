"""PTX executed without ptxas: where lanes meet again, what memory is touched, calls, parameters, spills."""

import re

import numpy as np
import pytest
from code_rules import verify_kernel

from analyzer.execution.profile.execution_profile import ExecutionProfile, MemoryAccess
from analyzer.frontend.ptx.lowering import read_ptx_module
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.ir.module import Kernel, Module, SourceFormat
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import Program
from analyzer.text.errors import InputError

HEAD = """.version 8.5
.target sm_80
.address_size 64
"""
REGISTERS = ".reg .b32 %r<400>; .reg .b64 %d<40>; .reg .f32 %f<400>; .reg .pred %p<40>; .reg .b16 %h<40>;\n"
ENTRY = (
    ".visible .entry k(.param .u64 .ptr .global out, .param .u32 n)\n{\n"
    + REGISTERS
    + "ld.param.u64 %d0, [out]; ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4;\n"
    "add.s64 %d2, %d0, %d1;\n"
)


def read_kernel(body: str, *, before: str = "", target: str = "sm_80") -> Module:
    """Return a module of one kernel, which may use %d0 (out), %r0 (n), %r1 (tid.x) and %d2 (out + 4 tid)."""
    text = HEAD.replace("sm_80", target) + before + ENTRY + body + "\nret;\n}\n"
    module = read_ptx_module(text, "kernel.ptx", target)
    for kernel in module.kernels:
        assert not verify_kernel(kernel)
    return module


def execute(module: Module, *, n: int = 5, threads: int = 64, ctas: int = 2) -> ExecutionProfile:
    """Execute the kernel."""
    launch = Launch(
        grid=Dim3(ctas),
        block=Dim3(threads),
        dynamic_shared_bytes=0,
        arguments=(Argument(0, Pointer(1 << 20)), Argument(1, n)),
    )
    executed = execute_kernel(Program(module).kernels[0], launch)
    assert executed is not None
    return executed.profile


def find_stores(profile: ExecutionProfile, space: str = "global") -> list[MemoryAccess]:
    """Return the stores to a memory in the order of the code."""
    return sorted((a for a in profile.accesses if a.is_store and a.space == space), key=lambda a: a.row)


def store_times(register: str) -> str:
    """Return a loop that stores as often as a register says, at least once."""
    return (
        f"mov.u32 %r399, 0; LAST: st.global.u32 [%d2], %r399; add.u32 %r399, %r399, 1;"
        f"setp.lt.u32 %p39, %r399, {register}; @%p39 bra LAST;"
    )


def count_stores(module: Module, n: int) -> int:
    """Return how often each warp stores."""
    (store,) = find_stores(execute(module, n=n))
    assert store.requests % 4 == 0
    return store.requests // 4


# Each leaves its lanes in many ways, and all store once at the end.
SHAPES = {
    "if": "setp.lt.u32 %p1, %r1, 7; @%p1 bra L; add.u32 %r2, %r1, 1; L:",
    "if-else": "setp.lt.u32 %p1, %r1, 7; @%p1 bra A; add.u32 %r2, %r1, 1; bra B; A: add.u32 %r2, %r1, 2; B:",
    "loop with trips by lane": (
        "mov.u32 %r2, 0; and.b32 %r3, %r1, 7; L: add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r3; @%p1 bra L;"
    ),
    "loop in one arm": (
        "setp.lt.u32 %p1, %r1, 7; @%p1 bra E; mov.u32 %r2, 0; and.b32 %r3, %r1, 3;"
        "L: add.u32 %r2, %r2, 1; setp.le.u32 %p2, %r2, %r3; @%p2 bra L; E:"
    ),
    "loop left in the middle": (
        "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.eq.u32 %p1, %r2, %r1; @%p1 bra E;"
        "setp.lt.u32 %p2, %r2, 9; @%p2 bra L; E:"
    ),
    "continue": (
        "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; and.b32 %r4, %r1, %r2; setp.eq.u32 %p1, %r4, 0;"
        "@%p1 bra C; add.u32 %r5, %r5, 1; C: setp.lt.u32 %p2, %r2, 9; @%p2 bra L;"
    ),
    "loop in a loop": (
        "mov.u32 %r2, 0; and.b32 %r3, %r1, 3; O: mov.u32 %r4, 0;"
        "I: add.u32 %r4, %r4, 1; setp.le.u32 %p1, %r4, %r3; @%p1 bra I;"
        "add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r3; @%p2 bra O;"
    ),
    "short circuit": (
        "setp.lt.u32 %p1, %r1, 7; @%p1 bra A; and.b32 %r2, %r1, 1; setp.eq.u32 %p2, %r2, 0; @%p2 bra B;"
        "bra E; A: and.b32 %r3, %r1, 2; setp.eq.u32 %p3, %r3, 0; @%p3 bra E; B: add.u32 %r4, %r1, 1; E:"
    ),
    "switch": (
        "and.b32 %r2, %r1, 3; T: .branchtargets A, B, C, E; brx.idx %r2, T;"
        "A: add.u32 %r3, %r1, 1; bra E; B: add.u32 %r3, %r1, 2; bra E; C: add.u32 %r3, %r1, 3; E:"
    ),
    "backward join": "bra M; E: bra F; M: setp.lt.u32 %p1, %r1, 7; @%p1 bra E; add.u32 %r2, %r1, 1; bra E; F:",
}


@pytest.mark.parametrize("name", SHAPES)
def test_lanes_meet_again_before_the_store(name: str) -> None:
    profile = execute(read_kernel(f"mov.u32 %r5, 0;{SHAPES[name]} st.global.u32 [%d2], %r1;"))
    (store,) = find_stores(profile)
    assert (store.requests, store.lanes, store.bytes) == (4, 128, 512)
    assert profile.provenance == "exact"


def test_lanes_that_exit_are_not_waited_for() -> None:
    body = "setp.ge.u32 %p1, %r1, %r0; @%p1 ret; setp.lt.u32 %p2, %r1, 2; @%p2 bra L; add.u32 %r2, %r1, 1;"
    (store,) = find_stores(execute(read_kernel(f"{body} L: st.global.u32 [%d2], %r1;")))
    assert (store.requests, store.lanes) == (2, 10)


def test_uniform_branches_need_no_barrier() -> None:
    loop = "mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r0; @%p1 bra L;"
    (kernel,) = read_kernel(f"{loop} st.global.u32 [%d2], %r2;").kernels
    assert not any("BSSY" in text for text in kernel.form_table.texts)
    divergent = loop.replace("%r0", "%r1")
    (kernel,) = read_kernel(f"{divergent} st.global.u32 [%d2], %r2;").kernels
    assert any("BSSY" in text for text in kernel.form_table.texts)


@pytest.mark.parametrize("trips", [1, 2, 37, 1000])
def test_trips_are_those_of_the_argument(trips: int) -> None:
    loop = "mov.u32 %r2, 0; L: st.global.u32 [%d2], %r2; add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r0; @%p1 bra L;"
    (store,) = find_stores(execute(read_kernel(loop), n=trips))
    assert store.requests == 4 * trips


def test_a_callee_stands_where_it_is_called() -> None:
    callee = (
        ".func (.param .b32 r) twice(.param .b32 x)\n{ .reg .b32 %r<9>; .reg .pred %p<3>;\n"
        "ld.param.u32 %r1, [x]; setp.eq.u32 %p1, %r1, 3; @%p1 bra L; shl.b32 %r2, %r1, 1;\n"
        "st.param.b32 [r+0], %r2; ret; L: st.param.b32 [r+0], %r1; ret; }\n"
    )
    call = (
        "{ .param .b32 a; st.param.b32 [a+0], %r0; .param .b32 b; call.uni (b), twice, (a); "
        "ld.param.b32 %r9, [b+0]; }"
    )
    module = read_kernel(call + store_times("%r9"), before=callee)
    assert [count_stores(module, n) for n in (1, 3, 5)] == [2, 3, 10]


def test_an_unknown_callee_makes_its_results_unknown() -> None:
    before = ".extern .func (.param .b32 r) far(.param .b32 x);\n"
    call = (
        "{ .param .b32 a; st.param.b32 [a+0], %r0; .param .b32 b; call.uni (b), far, (a); "
        "ld.param.b32 %r9, [b+0]; } setp.lt.u32 %p1, %r9, 3; @%p1 st.global.u32 [%d2], %r1;"
    )
    module = read_kernel(call, before=before)
    assert [d.code for d in module.diagnostics if d.severity == "warning"] == ["external-call"]
    (store,) = find_stores(execute(module))
    assert store.provenance != "exact"


def test_an_unknown_instruction_is_counted_and_its_result_unknown() -> None:
    module = read_kernel("frobnicate.b32 %r5, %r1; st.global.u32 [%d2], %r5;")
    (warning,) = [d for d in module.diagnostics if d.severity == "warning"]
    assert "frobnicate.b32" in warning.message
    (store,) = find_stores(execute(module))
    assert store.lanes == 128


def test_state_spaces_are_told_apart() -> None:
    body = """
    .shared .align 16 .b8 near[256]; .local .align 4 .b8 own[16];
    mov.u32 %r2, near; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3; st.shared.u32 [%r4], %r1; bar.sync 0;
    ld.shared.u32 %r5, [%r4]; mov.u64 %d5, own; st.local.u32 [%d5+4], %r5;
    cvta.shared.u64 %d7, %d8; cvt.u64.u32 %d8, %r4; cvta.shared.u64 %d9, %d8; st.u32 [%d9], %r5;
    st.u32 [%d2], %r5; ld.local.u32 %r6, [%d5+4]; st.global.u32 [%d2], %r6;
    """
    module = read_kernel(body)
    assert module.kernels[0].resources.shared_bytes == 256
    stores = execute(module, ctas=1)
    # the first to shared memory by name, another by its generic address
    assert [store.bytes for store in find_stores(stores, "shared")] == [256, 256]
    assert [store.bytes for store in find_stores(stores, "local")] == [256]
    assert len(find_stores(stores, "global")) == 1
    assert len(find_stores(stores, "generic")) == 1


def test_masked_copies_load_what_the_mask_says() -> None:
    body = """
    .shared .align 16 .b8 near[2048]; mov.u32 %r2, near; shl.b32 %r3, %r1, 4; add.u32 %r4, %r2, %r3;
    setp.lt.u32 %p1, %r1, %r0; selp.b32 %r5, 16, 0, %p1;
    cp.async.cg.shared.global [%r4], [%d0], 16, %r5; cp.async.commit_group; cp.async.wait_group 0;
    """
    profile = execute(read_kernel(body), n=5, ctas=1)
    loads = [a for a in profile.accesses if a.space == "global" and not a.is_store]
    assert [load.lanes for load in loads] == [5]


def test_parameters_stand_where_their_alignment_puts_them() -> None:
    text = HEAD + (
        ".visible .entry k(.param .u8 a, .param .u64 b, .param .u16 c, .param .align 16 .b8 d[20], .param .u32 e)"
        "\n{ .reg .b32 %r<5>; ret; }\n"
    )
    (kernel,) = read_ptx_module(text, "k.ptx", "sm_90").kernels
    assert kernel.parameters is not None
    assert [(p.offset, p.size_bytes) for p in kernel.parameters] == [
        (0, 1),
        (8, 8),
        (16, 2),
        (32, 20),
        (52, 4),
    ]
    assert kernel.parameter_base == 0x210


def test_a_module_says_that_it_is_virtual() -> None:
    module = read_kernel("st.global.u32 [%d2], %r1;")
    assert module.source_format is SourceFormat.VIRTUAL_PTX
    kernel = module.kernels[0]
    assert kernel.control_words is None
    assert kernel.ptx_lines is not None
    assert (kernel.ptx_lines > 0).all()


def test_ptx_without_a_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="no kernel"):
        read_ptx_module(HEAD + ".func f() { ret; }\n", "f.ptx", "sm_80")


# Register pressure


def make_pressure(n_live: int) -> str:
    """Return a body that keeps `n_live` numbers of the launch alive, then stores as often as their sum says."""
    parts = ["mul.lo.u32 %r2, %r0, 3;"]
    parts += [f"mad.lo.u32 %r{20 + i}, %r0, {i + 1}, %r2;" for i in range(n_live)]
    parts += ["bar.sync 0; mov.u32 %r3, 0;"]
    parts += [f"add.u32 %r3, %r3, %r{20 + i};" for i in reversed(range(n_live))]
    return " ".join([*parts, store_times("%r3")])


@pytest.mark.parametrize("n_live", [10, 300])
def test_words_beyond_the_registers_keep_their_values(n_live: int) -> None:
    module = read_kernel(make_pressure(n_live))
    kernel = module.kernels[0]
    assert kernel.resources.registers is not None
    assert kernel.resources.registers <= 255
    assert bool(kernel.resources.local_bytes) == (n_live > 255)
    assert count_stores(module, 2) == sum(2 * (i + 1) + 3 * 2 for i in range(n_live))


def test_predicates_beyond_the_predicates_keep_their_values() -> None:
    """Thirty conditions are live at once; each guards a store whose lanes it selects."""
    sets = " ".join(f"setp.lt.u32 %p{i + 1}, %r1, {i + 1};" for i in range(30))
    stores = " ".join(f"@%p{i + 1} st.global.u32 [%d2], %r1;" for i in range(30))
    profile = execute(read_kernel(f"{sets} bar.sync 0; {stores}"), threads=64, ctas=1)
    assert [store.lanes for store in find_stores(profile)] == list(range(1, 31))


@pytest.mark.parametrize("width", [2, 4])
def test_vectors_stand_side_by_side(width: int) -> None:
    names = ", ".join(f"%r{i + 2}" for i in range(width))
    turned = ", ".join(f"%r{i + 2}" for i in reversed(range(width)))
    body = f"ld.global.v{width}.u32 {{{names}}}, [%d0]; st.global.v{width}.u32 [%d0+64], {{{turned}}};"
    (kernel,) = read_kernel(body).kernels
    texts = [kernel.decode_form(row).text for row in range(len(kernel))]
    (load,) = [text for text in texts if text.startswith("LDG")]
    (store,) = [text for text in texts if text.startswith("STG")]
    # the elements are stored in another order, so they are copied; straight copies are not
    assert sum(text.startswith("MOV R") for text in texts) >= width
    assert int(_find_register(load)) % width == 0
    assert int(_find_register(store.partition("],")[2])) % width == 0


def _find_register(text: str) -> str:
    match = re.search(r"\bR(\d+)", text)
    assert match is not None
    return match[1]


def list_opcodes(kernel: Kernel) -> list[str]:
    """Return the opcodes in order."""
    return [kernel.find_opcode(row).mnemonic for row in range(len(kernel))]


MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r2, %r3, %r4, %r5}, {%r6, %r7}, "
    "{%f1, %f2, %f3, %f4}; st.global.f32 [%d2], %f1;"
)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("sm_75", ["HMMA.1688.F32"] * 2), ("sm_80", ["HMMA.16816.F32"]), ("sm_120", ["HMMA.16816.F32"])],
)
def test_products_take_as_many_instructions_as_the_target_needs(target: str, expected: list[str]) -> None:
    (kernel,) = read_kernel(MMA, target=target).kernels
    assert [name for name in list_opcodes(kernel) if "MMA" in name] == expected
    shapes = [kernel.find_opcode(row).mma_shape for row in range(len(kernel))]
    assert sum(shape.n_fmas for shape in shapes if shape is not None) == 16 * 8 * 16


def test_divisions_by_one_value_share_its_reciprocal() -> None:
    body = "ld.global.v2.f32 {%f1, %f2}, [%d0]; div.full.f32 %f3, %f1, %f2; div.full.f32 %f4, %f2, %f2;"
    (kernel,) = read_kernel(f"{body} st.global.v2.f32 [%d0], {{%f3, %f4}};").kernels
    assert list_opcodes(kernel).count("MUFU.RCP") == 1


def test_lines_of_the_ptx_are_kept() -> None:
    (kernel,) = read_kernel("\n\n\nst.global.u32 [%d2], %r1;").kernels
    row = next(row for row in range(len(kernel)) if kernel.decode_form(row).text.startswith("STG"))
    assert kernel.ptx_lines is not None
    text = HEAD + ENTRY
    assert int(kernel.ptx_lines[row]) == text.count("\n") + 4
    assert np.all(np.diff(kernel.addresses) == 16)
