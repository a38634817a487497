"""BF16 GEMM with mma.sync, A row-major and B column-major: learn_cuda_sm80.cu."""

from kernels.recipes import CUDA, MeasuredRow, Recipe

_SIZES = ("BM", "BN", "BK", "WARPS_M", "WARPS_N")


def recipe(row: MeasuredRow) -> Recipe | None:
    """Return the build of the row's step.

    Template parameters after the sizes: row length, cp.async, swizzle (v1 to v4); stages, CTAs in a group
    (v6).
    """
    step = row.step.split()[0]
    template = row.find_template_parameters()
    sizes, further = template[: len(_SIZES)], template[len(_SIZES) :]
    depth = sizes[2]
    features: dict[str, int | str] = {
        "ASYNC": 1,
        "ROW": depth,
        "SWIZZLE": 1,
        "PAIR_B": 1,
        "STAGES": 1,
        "GROUP": 0,
    }
    match step:
        case "v1" | "v2" | "v3" | "v4":
            length, copied, swizzled = further
            features |= {"ROW": length, "ASYNC": _flag(copied), "SWIZZLE": _flag(swizzled), "PAIR_B": 0}
        case "v5":
            pass
        case "v6" | "v6b":
            stages, group = further
            features |= {"STAGES": stages, "GROUP": group}
        case _:
            return None
    # Registers are limited to fit three CTAs on an SM in step v2 only: only there three were resident.
    features["MIN_CTAS"] = 3 if step == "v2" else 1
    defines = (*zip(_SIZES, sizes, strict=True), *features.items())
    return Recipe(
        CUDA / "learn_cuda_sm80.cu", tuple(f"{name}={value}" for name, value in defines), (), "learn_gemm"
    )


def _flag(word: int | str) -> int:
    return int(word == "true")
