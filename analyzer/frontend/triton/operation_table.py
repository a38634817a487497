"""The operations of Triton IR that are known, with the rules by which their forms read.

Names of dialects are the present ones (`ttg`, `ttng`); formats and numbers of enumerations are facts of the
definitions of the dialects in Triton's and LLVM's sources. Operations that are not here read too, and are
counted.
"""

from msgspec.structs import replace

from analyzer.frontend.triton.rules import Derivation, Enumeration, OperandOrder, OperationRule

TOKEN_TYPE = "!ttg.async.token"

_AXES = ("x", "y", "z")
_INTEGER_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = (
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
)
_PRECISION = Enumeration("inputPrecision", ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"))
_CACHE = Enumeration("cache", ("none", "ca", "cg", "wb", "cs", "wt", "cv"), 1)
_EVICTION = Enumeration("evict", ("evict_normal", "evict_first", "evict_last"), 1)
_SEMANTICS = Enumeration("sem", ("relaxed", "acquire", "release", "acq_rel"), 1)
_SCOPE = Enumeration("scope", ("gpu", "cta", "sys"), 1)
_UPDATES = Enumeration(
    "atomic_rmw_op", ("and", "or", "xor", "add", "fadd", "max", "min", "umax", "umin", "exch"), 1
)
_SCALED_TYPES = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "bf16", "fp16")

_LISTED = OperationRule()
_ARITHMETIC = OperationRule(
    renamed=(("overflow", "overflowFlags"),), defaults=(("fastmath", "none"), ("overflowFlags", "none"))
)
_CACHED = OperationRule(
    renamed=(("cacheModifier", "cache"), ("evictionPolicy", "evict")),
    enumerations=(_CACHE, _EVICTION),
    defaults=(
        ("boundaryCheck", "[]"),
        ("cache", "none"),
        ("evict", "evict_normal"),
        ("isVolatile", "false"),
    ),
)
_REDUCTION = OperationRule(
    keywords=("kind",),
    enumerations=(Enumeration("kind", ("none", "add", "min", "max", "inc", "dec", "and", "or", "xor")),),
)
_LOOP = OperationRule(implicit_terminator="scf.yield")


def _list_names(dialect: str, names: str) -> list[str]:
    return [f"{dialect}.{name}" for name in names.split()]


_PLAIN = [
    "module",
    *_list_names(
        "tt", "return splat broadcast expand_dims trans reshape unsplat bitcast int_to_ptr ptr_to_int"
    ),
    *_list_names("tt", "precise_sqrt precise_divf approx_divf mulhiui make_range reduce reduce.return"),
    *_list_names(
        "tt", "scan scan.return map_elementwise map_elementwise.return histogram gather join split cat"
    ),
    *_list_names("tt", "linear_apply descriptor_gather descriptor_scatter extern_elementwise"),
    *_list_names("tt", "grid_dependency_launch_dependents grid_dependency_wait"),
    *_list_names("ttg", "convert_layout local_alloc local_load local_store local_dealloc memdesc_index"),
    *_list_names("ttg", "alloc_tensor extract_slice"),  # Triton 2
    *_list_names("ttg", "memdesc_subview memdesc_trans memdesc_reshape memdesc_reinterpret local_gather"),
    *_list_names("ttg", "local_scatter local_atomic_scatter_rmw barrier local_barrier warp_specialize"),
    *_list_names(
        "ttg", "warp_specialize.partitions warp_yield warp_return global_scratch_alloc warp_id mask"
    ),
    *_list_names("ttg", "mask.return predicate_stage fp4_to_fp"),
    *_list_names("ttng", "warp_group_dot_wait fence_async_shared fence_mbarrier_init_release_cluster"),
    *_list_names("ttng", "cluster_arrive cluster_wait cluster_barrier fence inval_barrier wait_barrier"),
    *_list_names("ttng", "async_copy_mbarrier_arrive async_shared_store async_tma_copy_local_to_global"),
    *_list_names(
        "ttng", "async_tma_scatter async_tma_store_wait tensormap_create tensormap_fenceproxy_acquire"
    ),
    *_list_names("ttng", "tc_gen5_commit tmem_alloc tmem_subslice tmem_copy tmem_wait clc_try_cancel"),
    *_list_names("ttng", "clc_try_cancel_sync clc_load_result clc_is_canceled"),
    *_list_names("scf", "while yield condition execute_region reduce reduce.return"),
    *_list_names("cf", "br cond_br"),
    *_list_names("ub", "poison unreachable"),
    *_list_names("gpu", "barrier return"),
    *_list_names("nvvm", "barrier0 barrier cluster.arrive cluster.wait fence.proxy bar.warp.sync mapa"),
    *_list_names(
        "nvvm", "read.ptx.sreg.tid.x read.ptx.sreg.ctaid.x read.ptx.sreg.ctaid.y read.ptx.sreg.ctaid.z"
    ),
    *_list_names(
        "nvvm", "read.ptx.sreg.clusterid.x read.ptx.sreg.cluster.ctarank read.ptx.sreg.nclusterid.x"
    ),
    *_list_names("llvm", "mlir.constant mlir.undef mlir.poison mlir.zero call call_intrinsic return bitcast"),
    *_list_names("llvm", "addrspacecast intr.assume ptrtoint inttoptr"),
]
_ELEMENTWISE = [
    *_list_names(
        "arith", "constant addi addf subi subf muli mulf divsi divui divf remsi remui remf andi ori xori"
    ),
    *_list_names("arith", "shli shrsi shrui minsi minui maxsi maxui minimumf maximumf minnumf maxnumf negf"),
    *_list_names(
        "arith", "ceildivsi ceildivui floordivsi extf extsi extui truncf trunci sitofp uitofp fptosi"
    ),
    *_list_names("arith", "fptoui bitcast index_cast index_castui convertf scaling_extf scaling_truncf"),
    *_list_names("math", "absf absi acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh ctlz"),
    *_list_names(
        "math", "ctpop cttz erf erfc exp exp2 expm1 floor fma fpowi ipowi log log10 log1p log2 powf"
    ),
    *_list_names(
        "math", "round roundeven rsqrt sin sinh sqrt tan tanh trunc isnan isinf isfinite isnormal clampf"
    ),
]
_SPECIAL: dict[str, OperationRule] = {
    "arith.cmpi": replace(
        _ARITHMETIC,
        derivation=Derivation.BOOLEAN,
        keywords=("predicate",),
        enumerations=(Enumeration("predicate", _INTEGER_PREDICATES),),
    ),
    "arith.cmpf": replace(
        _ARITHMETIC,
        derivation=Derivation.BOOLEAN,
        keywords=("predicate",),
        enumerations=(Enumeration("predicate", _FLOAT_PREDICATES),),
    ),
    "arith.select": OperationRule(Derivation.LAST),
    "arith.addui_extended": OperationRule(Derivation.CARRY),
    "arith.mulsi_extended": OperationRule(Derivation.FIRST),
    "arith.mului_extended": OperationRule(Derivation.FIRST),
    "tt.func": OperationRule(symbol="sym_name"),
    "func.func": OperationRule(symbol="sym_name"),
    "tt.call": OperationRule(symbol="callee"),
    "func.call": OperationRule(symbol="callee"),
    "tt.addptr": OperationRule(Derivation.FIRST),
    "tt.advance": OperationRule(Derivation.FIRST, elided_type="!tt.ptr"),
    "tt.load": replace(_CACHED, derivation=Derivation.POINTEE),
    "tt.store": _CACHED,
    "tt.descriptor_load": _CACHED,
    "tt.descriptor_store": OperationRule(operand_order=OperandOrder.DESCRIPTOR_STORE),
    "tt.descriptor_reduce": replace(_REDUCTION, operand_order=OperandOrder.DESCRIPTOR_STORE),
    "ttng.async_tma_reduce": _REDUCTION,
    "tt.fp_to_fp": OperationRule(enumerations=(Enumeration("rounding", ("rtz", "rtne", "rs")),)),
    "tt.clampf": OperationRule(enumerations=(Enumeration("propagateNan", ("none",)),)),
    "tt.get_program_id": OperationRule(keywords=("axis",), enumerations=(Enumeration("axis", _AXES),)),
    "tt.get_num_programs": OperationRule(keywords=("axis",), enumerations=(Enumeration("axis", _AXES),)),
    "tt.atomic_rmw": OperationRule(
        keywords=("atomic_rmw_op", "sem", "scope"), enumerations=(_UPDATES, _SEMANTICS, _SCOPE)
    ),
    "tt.dot": OperationRule(
        enumerations=(_PRECISION,), defaults=(("inputPrecision", "ieee"), ("maxNumImpreciseAcc", "0"))
    ),
    "ttng.warp_group_dot": OperationRule(
        enumerations=(_PRECISION,),
        defaults=(("inputPrecision", "ieee"), ("maxNumImpreciseAcc", "0"), ("isAsync", "false")),
    ),
    "tt.dot_scaled": OperationRule(
        renamed=(("lhs", "a_elem_type"), ("rhs", "b_elem_type")),
        enumerations=(Enumeration("a_elem_type", _SCALED_TYPES), Enumeration("b_elem_type", _SCALED_TYPES)),
        defaults=(("lhs_k_pack", "true"), ("rhs_k_pack", "true")),
        operand_order=OperandOrder.SCALED,
        keeps_segments=True,
    ),
    "tt.make_tensor_ptr": OperationRule(Derivation.LAST, elided_type="!tt.ptr"),
    "tt.make_tensor_descriptor": OperationRule(
        Derivation.LAST,
        enumerations=(Enumeration("padding", ("pad_zero", "pad_nan"), 1),),
        defaults=(("padding", "pad_zero"),),
        elided_type="!tt.tensordesc",
    ),
    "tt.elementwise_inline_asm": OperationRule(strings=("asm_string",)),
    "ttg.inline_asm": OperationRule(strings=("asm_string",)),
    "tt.assert": OperationRule(strings=("message",)),
    "tt.print": OperationRule(strings=("prefix",)),
    "cf.assert": OperationRule(strings=("msg",)),
    "llvm.inline_asm": OperationRule(strings=("asm_string", "constraints")),
    "ttg.memdesc_subslice": OperationRule(numbers="offsets"),
    "ttg.upcast_mxfp": OperationRule(enumerations=(Enumeration("fp_type", _SCALED_TYPES),)),
    "ttg.async_copy_global_to_local": replace(_CACHED, derivation=Derivation.TOKEN),
    "ttg.insert_slice_async": replace(_CACHED, derivation=Derivation.LAST),  # Triton 2's copy of Ampere
    "ttg.async_commit_group": OperationRule(Derivation.TOKEN),
    "ttg.async_wait": OperationRule(Derivation.TOKEN),
    "ttng.init_barrier": OperationRule(numbers="count"),
    "ttng.barrier_expect": OperationRule(numbers="size"),
    "ttng.arrive_barrier": OperationRule(numbers="count", defaults=(("multicastCTA", "0"),)),
    "ttng.async_tma_copy_global_to_local": replace(_CACHED, operand_order=OperandOrder.BARRIER_FIRST),
    "ttng.async_tma_gather": OperationRule(operand_order=OperandOrder.BARRIER_FIRST),
    "ttng.tc_gen5_mma": OperationRule(Derivation.TOKEN, operand_order=OperandOrder.MMA, keeps_segments=True),
    "ttng.tc_gen5_mma_scaled": OperationRule(
        Derivation.TOKEN,
        renamed=(("lhs", "a_type"), ("rhs", "b_type")),
        enumerations=(Enumeration("a_type", _SCALED_TYPES), Enumeration("b_type", _SCALED_TYPES)),
        operand_order=OperandOrder.SCALED_MMA,
        keeps_segments=True,
    ),
    "ttng.tmem_load": OperationRule(Derivation.SECOND_TOKEN),
    "ttng.tmem_store": OperationRule(Derivation.TOKEN, operand_order=OperandOrder.STORE),
    "ttng.reinterpret_tensor_descriptor": OperationRule(elided_type="!tt.tensordesc"),
    "ttng.clc_get_program_id": OperationRule(keywords=("dim",), enumerations=(Enumeration("dim", _AXES),)),
    "ttng.packed_arith": OperationRule(keywords=("op_kind", "packed_type")),
    "scf.for": _LOOP,
    "scf.if": _LOOP,
    "scf.parallel": _LOOP,
    "scf.forall": _LOOP,
    "scf.index_switch": _LOOP,
    **dict.fromkeys(
        _list_names("gpu", "thread_id block_id block_dim grid_dim cluster_id cluster_block_id"),
        OperationRule(keywords=("dimension",)),
    ),
    **dict.fromkeys(
        _list_names("tt", "atomic_cas atomic_load atomic_store atomic_poll"),
        OperationRule(keywords=("sem", "scope"), enumerations=(_SEMANTICS, _SCOPE)),
    ),
}
RULES = {
    **dict.fromkeys(_PLAIN, _LISTED),
    **dict.fromkeys(_ELEMENTWISE, _ARITHMETIC),
    **_SPECIAL,
}
