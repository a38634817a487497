"""Special registers of PTX: which word of constant bank 0 or which register of S2R has their value."""

_AXES = {"x": 0, "y": 1, "z": 2}
_SPECIAL_REGISTERS = {
    "%tid": "SR_TID", "%ctaid": "SR_CTAID", "%laneid": "SR_LANEID", "%warpid": "SR_VIRTID",
    "%smid": "SR_VIRTUALSMID", "%nsmid": "SR_VIRTCFG", "%lanemask_eq": "SR_EQMASK",
    "%lanemask_lt": "SR_LTMASK", "%lanemask_le": "SR_LEMASK", "%lanemask_gt": "SR_GTMASK",
    "%lanemask_ge": "SR_GEMASK", "%cluster_ctarank": "SR_CgaCtaId", "%cluster_nctarank": "SR_CgaSize",
    "%clock": "SR_CLOCKLO", "%clock_hi": "SR_CLOCKHI", "%clock64": "SR_CLOCKLO",
    "%globaltimer": "SR_GLOBALTIMERLO", "%globaltimer_lo": "SR_GLOBALTIMERLO",
    "%globaltimer_hi": "SR_GLOBALTIMERHI", "%dynamic_smem_size": "SR_SMEMSZ",
    "%total_smem_size": "SR_SMEMSZ", "%nwarpid": "SR_NWARPID", "%gridid": "SR_GRIDID",
}  # fmt: skip


def find_dimension(name: str) -> tuple[str, int] | None:
    """Return `%ntid` or `%nctaid` and the axis that a name asks for, which constant bank 0 has."""
    base, _, axis = name.partition(".")
    return (base, _AXES[axis]) if base in ("%ntid", "%nctaid") and axis in _AXES else None


def find_special_register(name: str) -> str | None:
    """Return the register that S2R reads, `SR_TID.X` of `%tid.x`; None for one without a lowering."""
    base, _, axis = name.partition(".")
    special = _SPECIAL_REGISTERS.get(base)
    return f"{special}.{axis.upper()}" if special and axis else special
