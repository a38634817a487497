"""Configuration sweeps of three Triton kernels, and sustained clocks and power. python3 sweep.py OUT SECONDS [--dry]"""
import hashlib, json, os, sys, threading, time, random
import numpy as np
import cases as CS
import collect, tcompile
from cu import Launch

OUT, BUDGET, DRY = sys.argv[1], float(sys.argv[2]), "--dry" in sys.argv
T0 = time.time()
W = os.path.abspath("work")
LIM = 227 * 1024


def cdiv(a, b): return -(-a // b)


def moe_configs():
    for BM in (16, 32, 64, 128, 256):
        for BN in (32, 64, 128, 256):
            for BK in (32, 64, 128, 256):
                for GM in (1, 16):
                    for nw in (4, 8):
                        for ns in (2, 3, 4, 5):
                            if BM * BN <= 32768 and (BM + BN) * BK * 2 * (ns - 1) <= LIM:
                                yield dict(BM=BM, BN=BN, BK=BK, GM=GM), nw, ns


def gemm_configs():
    for BM in (16, 32, 64, 128, 256):
        for BN in (32, 64, 128, 256):
            for BK in (32, 64, 128):
                for nw in (4, 8):
                    for ns in (2, 3, 4, 5):
                        if BM * BN <= 32768 and (BM + BN) * BK * 2 * (ns - 1) <= LIM:
                            yield dict(BM=BM, BN=BN, BK=BK, GM=8), nw, ns


def attn_configs():
    for BM in (32, 64, 128, 256):
        for BN in (16, 32, 64, 128):
            for nw in (4, 8):
                for ns in (1, 2, 3, 4):
                    if BM * BN <= 16384 and BM >= 16 * nw / 4:
                        yield BM, BN, nw, ns


P = CS.ptr
I = lambda n, v: [n, "i32", int(v)]


def balanced(T, E, topk, bm):
    flat = np.arange(T * topk)
    ids, ex = [], []
    for e in range(E):
        t = flat[flat % E == e]
        if len(t):
            pad = cdiv(len(t), bm) * bm
            ids.append(np.concatenate([t, np.full(pad - len(t), T * topk)]))
            ex += [e] * (pad // bm)
    return np.concatenate(ids).astype(np.int32), np.array(ex, np.int32)


import functools
_host = CS.host_array
@functools.lru_cache(None)
def host_array(key):
    if key.startswith("bal_"):
        _, T, E, topk, bm = key.split("_")
        return balanced(int(T), int(E), int(topk), int(bm))
    return _host(key)
CS.host_array = host_array

# T tokens, E experts, topk, N output width (2 x intermediate), K
MOE = [(T, E, k, N, K) for T in (1, 16, 64, 256, 1024, 4096) for E, k, N, K in ((8, 2, 14336, 4096), (128, 8, 1536, 2048), (64, 6, 2816, 2048))] + [(512, 128, 8, 3072, 4096), (2048, 8, 2, 28672, 4096)]
GEMM = [(M, N, K) for M in (16, 128, 512, 2048, 4096) for N, K in ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 8192))] + [(8192, 8192, 8192), (1000, 4104, 2056), (300, 1000, 8192)]
ATT = [(1, 32, 1024, 1024, 128, c) for c in (False, True)] + [(1, 32, 4096, 4096, 128, c) for c in (False, True)] + [(4, 32, 2048, 2048, 128, c) for c in (False, True)] + \
      [(16, 16, 512, 512, 128, c) for c in (False, True)] + [(1, 8, 16384, 16384, 128, True), (16, 32, 128, 4096, 128, False), (3, 14, 1000, 1000, 128, True)]


def all_sweep():
    out = []
    for T, E, topk, N, K in MOE:
        per = cdiv(T * topk, E)
        for cons, nw, ns in moe_configs():
            if cons["BM"] > 16 and cons["BM"] >= 4 * per and cons["BM"] > 64:
                continue
            key = f"bal_{T}_{E}_{topk}_{cons['BM']}"
            ids, ex = host_array(key)
            args = [P("a_ptr", "A", T * K, "bf16") if False else P("a_ptr", "A:bf16", T * K, "bf16"), P("b_ptr", "B:bf16", E * N * K, "bf16"), P("c_ptr", "C:bf16", T * topk * N, "bf16"),
                    ["ids_ptr", "ptr", f"HOST:{key}:0", ids.nbytes], ["exp_ptr", "ptr", f"HOST:{key}:1", ex.nbytes],
                    ["n_valid", "i32", T * topk], ["N", "i32", N], ["K", "i32", K], ["TOPK", "i32", topk], ["NM", "i32", len(ex)], ["sa", "i32", K], ["sbe", "i32", N * K], ["sb", "i32", K], ["sc", "i32", N]]
            c = CS.tcase("t_moe_sweep", f"moe/T{T}_E{E}_k{topk}_{N}x{K}/{cons['BM']}x{cons['BN']}x{cons['BK']}_g{cons['GM']}_w{nw}_s{ns}", (len(ex) * cdiv(N, cons["BN"]),), args, cons, nw, ns, 0, "moe",
                         T=T, E=E, topk=topk, N=N, K=K, flops=2 * T * topk * N * K)
            for s in c["variant"]["sig"]:      # sizes that change by shape are not specialised: one cubin serves all
                if s[0] in ("n_valid", "NM", "TOPK"):
                    s[2] = False
            out.append(c)
    for M, N, K in GEMM:
        for cons, nw, ns in gemm_configs():
            if cons["BM"] > 64 and cons["BM"] >= 4 * M:
                continue
            c = CS.matmul_case(M, N, K, (cons["BM"], cons["BN"], cons["BK"]), nw, ns, "bf16", "gemm", 0, prefix="gemm")
            for s in c["variant"]["sig"]:
                if s[0] == "M":
                    s[2] = False
            out.append(c)
    for B, H, S, SK, D, causal in ATT:
        for bm, bn, nw, ns in attn_configs():
            q, kv = B * H * S * D, B * H * SK * D
            args = [P("q_ptr", "A:bf16", q, "bf16"), P("k_ptr", "B:bf16", kv, "bf16"), P("v_ptr", "V:bf16", kv, "bf16"), P("o_ptr", "C:bf16", q, "bf16"), ["scale", "f32", 1.4426950408889634 / D ** 0.5], I("S", S), I("SK", SK)]
            c = CS.tcase("t_attention", f"attention/{'causal' if causal else 'full'}/b{B}h{H}s{S}k{SK}/{bm}x{bn}_w{nw}_s{ns}", (cdiv(S, bm), B * H), args, dict(BM=bm, BN=bn, D=D, CAUSAL=causal), nw, ns, 0, "attention",
                         B=B, H=H, S=S, SK=SK, D=D, causal=causal, flops=4 * B * H * S * SK * D // (2 if causal else 1))
            for s in c["variant"]["sig"]:
                if s[0] in ("S", "SK"):
                    s[2] = False
            out.append(c)
    return out


def power(a, OUT):
    import torch
    from cu import Nvml
    nv = Nvml()
    dev = "cuda"
    g = torch.Generator(device=dev).manual_seed(1)
    rnd = lambda m, n, dt=torch.bfloat16: (torch.rand(m, n, generator=g, device=dev) * 2 - 1).to(dt)
    nrm = lambda m, n, dt=torch.bfloat16: torch.randn(m, n, generator=g, device=dev).to(dt)
    jobs = []

    def mm(name, n, mk, dt):
        x, y, o = mk(n, n, dt), mk(n, n, dt), torch.empty(n, n, device=dev, dtype=dt)
        jobs.append((name, 2 * n ** 3, 0, lambda: torch.mm(x, y.t(), out=o)))
    zero = lambda m, n, dt: torch.zeros(m, n, device=dev, dtype=dt)
    mm("mm_bf16_uniform_8192", 8192, rnd, torch.bfloat16)
    mm("mm_bf16_normal_8192", 8192, nrm, torch.bfloat16)
    mm("mm_bf16_zeros_8192", 8192, zero, torch.bfloat16)
    mm("mm_bf16_uniform_4096", 4096, rnd, torch.bfloat16)
    mm("mm_bf16_uniform_2048", 2048, rnd, torch.bfloat16)
    mm("mm_f16_uniform_8192", 8192, rnd, torch.float16)
    mm("mm_f32_uniform_8192", 8192, rnd, torch.float32)
    mm("mm_f64_uniform_4096", 4096, rnd, torch.float64)
    x8, y8, one = rnd(8192, 8192).to(torch.float8_e4m3fn), rnd(8192, 8192).to(torch.float8_e4m3fn), torch.ones((), device=dev)
    jobs.append(("mm_e4m3_uniform_8192", 2 * 8192 ** 3, 0, lambda: torch._scaled_mm(x8, y8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)))
    xi = torch.randint(-127, 128, (8192, 8192), generator=g, device=dev, dtype=torch.int8)
    jobs.append(("mm_int8_uniform_8192", 2 * 8192 ** 3, 0, lambda: torch._int_mm(xi, xi.t())))
    big, big2 = torch.rand(1 << 29, generator=g, device=dev), torch.empty(1 << 29, device=dev)
    jobs.append(("copy_2GiB", 0, 2 * 4 << 29, lambda: big2.copy_(big)))
    jobs.append(("fill_2GiB", 0, 4 << 29, lambda: big2.fill_(1.0)))
    sm, sm2 = big[: 1 << 21], big2[: 1 << 21]
    jobs.append(("copy_8MiB_L2", 0, 2 * 4 << 21, lambda: sm2.copy_(sm)))
    jobs.append(("exp_2GiB", 0, 2 * 4 << 29, lambda: torch.exp(big, out=big2)))
    q = rnd(16 * 2048, 16 * 128).view(16, 2048, 16, 128).transpose(1, 2)
    jobs.append(("sdpa_flash_b16h16s2048d128", 4 * 16 * 16 * 2048 * 2048 * 128, 0, lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q)))
    xg, yg = rnd(64, 8192), rnd(28672, 8192)
    jobs.append(("mm_bf16_64x28672x8192", 2 * 64 * 28672 * 8192, 2 * 28672 * 8192, lambda: torch.mm(xg, yg.t())))
    for name, flops, bytes_, fn in jobs:
        rec = {"workload": name, "flops": flops, "bytes": bytes_}
        try:
            torch.backends.cuda.matmul.allow_tf32 = False
            fn(); torch.cuda.synchronize()
            e = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            e[0].record(); [fn() for _ in range(3)]; e[1].record(); torch.cuda.synchronize()
            per = max(e[0].elapsed_time(e[1]) / 3, 0.005)
            rec["first_us"] = per * 1e3
            n = max(4, int(20 / per))
            gr = torch.cuda.CUDAGraph()
            with torch.cuda.graph(gr):
                for _ in range(n):
                    fn()
            time.sleep(0.3)
            samples, stop = [], False

            def watch():
                while not stop:
                    samples.append((time.time(), nv.sample()))
                    time.sleep(0.02)
            th = threading.Thread(target=watch); th.start()
            t_start = time.time()
            times = []
            while time.time() - t_start < 2.0:
                e[0].record(); gr.replay(); e[1].record(); torch.cuda.synchronize()
                times.append((time.time() - t_start, e[0].elapsed_time(e[1]) / n * 1e3))
            stop = True; th.join()
            late = [s for t, s in samples if t - t_start > 1.0]
            med = lambda k: float(np.median([s[k] for s in late if s[k] is not None])) if late else None
            rec.update(launches_per_replay=n, us_by_replay=[[round(a, 3), round(b, 3)] for a, b in times], sustained_us=float(np.median([b for a, b in times if a > 1.0])),
                       sm_clock_mhz=med("sm_clock_mhz"), mem_clock_mhz=med("mem_clock_mhz"), power_w=med("power_w"), temperature_c=med("temperature_c"), status="ok")
            if flops:
                rec["tflops_sustained"] = flops / rec["sustained_us"] / 1e6
            if bytes_:
                rec["gbps_sustained"] = bytes_ / rec["sustained_us"] / 1e3
            del gr
        except Exception as ex:
            rec.update(status="error", error=f"{type(ex).__name__}: {str(ex)[:300]}")
        with open(f"{OUT}/power.jsonl", "a") as f:
            f.write(json.dumps(rec) + "\n")
        print({k: v for k, v in rec.items() if k != "us_by_replay"}, flush=True)


def measure(timer, cu, L):
    """(median, minimum) us of warm launches, event-timed as collect's warm times are."""
    cu.launch(L); cu.sync()
    t = timer._pairs(timer.delay, L, 1)[0]
    n = 3 if t > 3000 else 7
    if t > 20000:
        return t, t, 1
    x = timer._pairs(timer.delay, L, n)
    return float(np.median(x)), min(x), n


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    sel = all_sweep()
    variants = {}
    for c in sel:
        variants.setdefault(tcompile.variant_key(c["variant"]), c["variant"])
    print(len(sel), "cases", len(variants), "variants", {f: sum(c["family"] == f for c in sel) for f in ("moe", "gemm", "attention")}, f"{time.time() - T0:.1f} s", flush=True)
    if "--plan" in sys.argv:
        sys.exit()
    import argparse
    a = argparse.Namespace(work=W, out=OUT, dry_run=DRY)
    if not DRY:
        power(a, OUT)
        import torch
        torch.cuda.empty_cache()
    print(f"power done {time.time() - T0:.1f} s", flush=True)
    todo = list(variants.values())
    if DRY:
        todo = todo[::200]
    tm, te = tcompile.compile_many(todo, W + "/sweep", T0 + BUDGET * 0.62, print)
    print(f"compiled {len(tm)}, failed {len(te)} {list(te.items())[:3]} {time.time() - T0:.1f} s", flush=True)
    env = collect.Env(a)
    im = collect.Images(env, tm, te, W + "/sweep", None)
    random.Random(5).shuffle(sel)
    sel = [c for c in sel if tcompile.variant_key(c["variant"]) in tm]
    env.make_pools(sel)
    shapes = {}
    f = open(f"{OUT}/sweep.jsonl", "w")
    json_meta = {k: {x: m[x] for x in ("cubin_sha1", "smem_dyn_bytes", "num_warps", "num_stages", "triton_version", "variant")} for k, m in tm.items()}
    json.dump({"variants": json_meta, "failed": te, "device": env.info}, open(f"{OUT}/sweep_variants.json", "w"))
    last = None
    done = 0
    for c in sel:
        if time.time() - T0 > BUDGET:
            print("budget reached"); break
        try:
            L, rec = im.prepare(c)
            med, lo, n = measure(env.timer, env.cu, L)
            r = {"case_id": c["id"], "family": c["family"], "work": c["work"], "variant": tcompile.variant_key(c["variant"]), "grid": c["grid"], "regs": rec["regs_per_thread"], "local_bytes": rec["local_bytes_per_thread"],
                 "smem_dynamic_bytes": rec["smem_dynamic_bytes"], "max_blocks_per_sm": rec["max_blocks_per_sm"], "params": [[p["name"], p.get("value"), p.get("bytes")] for p in rec["params"]],
                 "time_us_median": round(med, 3), "time_us_min": round(lo, 3), "repeats": n, "status": "ok"}
        except collect.CuFatal as e:
            print("FATAL", c["id"], e, flush=True); break
        except Exception as e:
            r = {"case_id": c["id"], "status": "error", "error": str(e)[:200]}
        done += 1
        if done % 500 == 0:
            r.update(env.clocks()); print(done, f"{time.time() - T0:.1f} s", flush=True)
        f.write(json.dumps(collect.clean(r), separators=(",", ":")) + "\n")
    f.close()
    import lzma, shutil
    for n in ("sweep.jsonl", "sweep_variants.json"):
        with open(f"{OUT}/{n}", "rb") as i, lzma.open(f"{OUT}/{n}.xz", "wb", preset=1) as o:
            shutil.copyfileobj(i, o)
        os.remove(f"{OUT}/{n}")
    print(done, "of", len(sel), f"{time.time() - T0:.1f} s")
