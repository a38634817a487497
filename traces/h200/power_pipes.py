"""Write power.cu: one sustained loop for each pipe, with NVML's power and energy."""
def wgmma(name, n, k, dtype, atype, btype, acc, tail):
    regs = n // 2
    c = "f" if acc == "float" else "r"
    outs = ", ".join(f'"+{c}"(d[{i}])' for i in range(regs))
    names = ", ".join(f"%{i}" for i in range(regs))
    return f"""
__device__ __forceinline__ void {name}({acc} (&d)[{regs}], uint64_t a, uint64_t b) {{
  asm volatile("{{\\nwgmma.mma_async.sync.aligned.m64n{n}k{k}.{dtype}.{atype}.{btype} {{{names}}}, %{regs}, %{regs+1}, 1{tail};\\n}}\\n"
    : {outs} : "l"(a), "l"(b));
}}
"""
code = open("head.cu.in").read()
body = "".join([
    wgmma("mma_bf16", 256, 16, "f32", "bf16", "bf16", "float", ", 1, 1, 0, 0"),
    wgmma("mma_e4m3", 256, 32, "f32", "e4m3", "e4m3", "float", ", 1, 1"),
    wgmma("mma_tf32", 256, 8, "f32", "tf32", "tf32", "float", ", 1, 1"),
    wgmma("mma_s8", 256, 32, "s32", "s8", "s8", "int", ""),
])
open("power.cu", "w").write(code.replace("//WGMMA//", body))
