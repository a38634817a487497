"""The operations of Triton IR that are known, with the rules by which their pretty forms read.

Names of dialects are the present ones (`ttg`, `ttng`); see the definitions of the dialects in Triton's and LLVM's
sources. Operations that are not here read too, and are counted.
"""

from analyzer.frontend.triton.rules import Derivation, OperationRule


def _list_names(dialect: str, names: str) -> list[str]:
    return [f"{dialect}.{name}" for name in names.split()]


_LISTED = OperationRule()
_RULES_BY_NAMES: list[tuple[OperationRule, list[str]]] = [
    (
        _LISTED,
        [
            "module",
            *_list_names(
                "tt", "func return call splat broadcast expand_dims trans reshape unsplat bitcast fp_to_fp"
            ),
            *_list_names(
                "tt",
                "int_to_ptr ptr_to_int clampf precise_sqrt precise_divf mulhiui make_range dot dot_scaled",
            ),
            *_list_names(
                "tt", "reduce reduce.return scan scan.return map_elementwise map_elementwise.return store"
            ),
            *_list_names(
                "tt", "histogram gather join split cat descriptor_load descriptor_store descriptor_gather"
            ),
            *_list_names("tt", "descriptor_scatter descriptor_reduce make_tensor_descriptor make_tensor_ptr"),
            *_list_names("tt", "experimental_descriptor_load experimental_descriptor_store"),
            *_list_names("tt", "experimental_descriptor_gather experimental_descriptor_scatter"),
            *_list_names("tt", "experimental_tensormap_create experimental_tensormap_fenceproxy_acquire"),
            *_list_names("tt", "reinterpret_tensor_descriptor get_num_programs extern_elementwise unsplat"),
            *_list_names(
                "ttg", "convert_layout local_alloc local_load local_store local_dealloc memdesc_index"
            ),
            *_list_names(
                "ttg", "memdesc_subview memdesc_subslice memdesc_trans memdesc_reshape memdesc_reinterpret"
            ),
            *_list_names("ttg", "local_gather local_scatter local_atomic_scatter_rmw barrier local_barrier"),
            *_list_names(
                "ttg", "warp_specialize warp_specialize.partitions warp_yield warp_return upcast_mxfp"
            ),
            *_list_names("ttg", "global_scratch_alloc warp_id mask mask.return predicate_stage fp4_to_fp"),
            *_list_names("ttg", "async_copy_mbarrier_arrive"),
            *_list_names(
                "ttng",
                "warp_group_dot warp_group_dot_wait fence_async_shared fence_mbarrier_init_release_cluster",
            ),
            *_list_names(
                "ttng",
                "cluster_arrive cluster_wait cluster_barrier map_to_remote_buffer clc_try_cancel fence",
            ),
            *_list_names("ttng", "init_barrier inval_barrier barrier_expect wait_barrier arrive_barrier"),
            *_list_names(
                "ttng", "named_barrier_arrive named_barrier_wait async_copy_mbarrier_arrive vote_ballot_sync"
            ),
            *_list_names(
                "ttng", "async_tma_copy_global_to_local async_tma_copy_local_to_global async_tma_reduce"
            ),
            *_list_names("ttng", "async_tma_gather async_tma_scatter async_tma_store_wait tensormap_create"),
            *_list_names("ttng", "async_tma_prefetch async_store async_shared_store arrive_barrier_named"),
            *_list_names(
                "ttng", "tensormap_fenceproxy_acquire reinterpret_tensor_descriptor get_canonical_warp_id"
            ),
            *_list_names(
                "ttng", "tc_gen5_mma tc_gen5_mma_scaled tc_gen5_commit tmem_alloc tmem_load tmem_store"
            ),
            *_list_names(
                "ttng", "tmem_subslice tmem_copy tensor_desc_to_tma_ptr clc_load_result clc_is_canceled"
            ),
            *_list_names("ttng", "clc_get_program_id"),
            *_list_names(
                "scf", "for if while yield condition execute_region index_switch reduce reduce.return forall"
            ),
            *_list_names("cf", "br cond_br switch assert"),
            *_list_names("ub", "poison unreachable"),
            *_list_names(
                "arith",
                "constant addi addf subi subf muli mulf divsi divui divf remsi remui remf andi ori xori",
            ),
            *_list_names(
                "arith", "shli shrsi shrui minsi minui maxsi maxui minimumf maximumf minnumf maxnumf negf"
            ),
            *_list_names(
                "arith", "ceildivsi ceildivui floordivsi extf extsi extui truncf trunci sitofp uitofp fptosi"
            ),
            *_list_names(
                "arith", "fptoui bitcast index_cast index_castui convertf scaling_extf scaling_truncf"
            ),
            *_list_names(
                "math",
                "absf absi acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh ctlz ctpop",
            ),
            *_list_names(
                "math", "cttz erf erfc exp exp2 expm1 floor fma fpowi ipowi log log10 log1p log2 powf round"
            ),
            *_list_names(
                "math", "roundeven rsqrt sin sinh sqrt tan tanh trunc isnan isinf isfinite isnormal clampf"
            ),
            *_list_names(
                "gpu", "barrier thread_id block_id block_dim grid_dim cluster_id cluster_block_id return"
            ),
            *_list_names(
                "nvvm", "barrier0 barrier cluster.arrive cluster.wait fence.proxy bar.warp.sync mapa"
            ),
            *_list_names(
                "nvvm",
                "read.ptx.sreg.tid.x read.ptx.sreg.ctaid.x read.ptx.sreg.ctaid.y read.ptx.sreg.ctaid.z",
            ),
            *_list_names(
                "nvvm", "read.ptx.sreg.clusterid.x read.ptx.sreg.cluster.ctarank read.ptx.sreg.nclusterid.x"
            ),
            *_list_names(
                "llvm", "inline_asm mlir.constant mlir.undef mlir.poison call call_intrinsic return"
            ),
            *_list_names("llvm", "bitcast addrspacecast intr.assume ptrtoint inttoptr"),
        ],
    ),
    (OperationRule(Derivation.BOOLEAN, keywords=("predicate",)), ["arith.cmpi", "arith.cmpf"]),
    (OperationRule(Derivation.LAST), ["arith.select"]),
    (OperationRule(Derivation.CARRY), ["arith.addui_extended"]),
    (OperationRule(Derivation.FIRST), ["arith.mulsi_extended", "arith.mului_extended"]),
    (OperationRule(Derivation.FIRST), ["tt.addptr", "tt.advance"]),
    (OperationRule(Derivation.POINTEE), ["tt.load"]),
    (OperationRule(keywords=("axis",)), ["tt.get_program_id", "tt.get_num_programs"]),
    (OperationRule(keywords=("atomic_rmw_op", "sem", "scope")), ["tt.atomic_rmw"]),
    (OperationRule(keywords=("sem", "scope")), ["tt.atomic_cas", "tt.atomic_poll"]),
    (OperationRule(keywords=("kind",)), ["tt.descriptor_reduce", "tt.experimental_descriptor_reduce"]),
    (OperationRule(keywords=("kind",)), ["ttng.async_tma_reduce"]),
    (OperationRule(keywords=("dimension",)), _list_names("gpu", "thread_id block_id block_dim grid_dim")),
    (OperationRule(strings=("asm_string",)), ["tt.elementwise_inline_asm"]),
    (OperationRule(strings=("message",)), ["tt.assert"]),
    (OperationRule(strings=("prefix",)), ["tt.print"]),
    (OperationRule(strings=("msg",)), ["cf.assert"]),
    (OperationRule(strings=("asm_string", "constraints")), ["llvm.inline_asm"]),
    (OperationRule(numbers="offsets"), ["ttg.memdesc_subslice"]),
    (
        OperationRule(Derivation.TOKEN),
        _list_names("ttg", "async_commit_group async_wait async_copy_global_to_local"),
    ),
]
RULES = {name: rule for rule, names in _RULES_BY_NAMES for name in names}
TOKEN_TYPE = "!ttg.async.token"
