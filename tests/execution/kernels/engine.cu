// Bulk and tensor copies that write: one CTA's tiles through shared memory.
#include <cstdint>
#include <cuda.h>
#define K extern "C" __global__
__device__ __forceinline__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(uint64_t* bar) {
    asm volatile("mbarrier.init.shared.b64 [%0],1;" ::"r"(shared_address(bar)));
}
__device__ __forceinline__ void expect(uint64_t* bar, int n) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(shared_address(bar)), "r"(n) : "memory");
}
__device__ __forceinline__ void wait(uint64_t* bar, int parity) {
    asm volatile("{.reg .pred p; L1: mbarrier.try_wait.parity.shared.b64 p,[%0],%1; @p bra L2; bra L1; L2: }"
                 ::"r"(shared_address(bar)), "r"(parity) : "memory");
}
__device__ __forceinline__ void fence() { asm volatile("fence.proxy.async.shared::cta;"); }
__device__ __forceinline__ void commit() { asm volatile("cp.async.bulk.commit_group;"); }
__device__ __forceinline__ void load(void* to, const void* from, int n, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"
                 ::"r"(shared_address(to)), "l"(from), "r"(n), "r"(shared_address(bar)) : "memory");
}
__device__ __forceinline__ void store(void* to, const void* from, int n) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0],[%1],%2;"
                 ::"l"(to), "r"(shared_address(from)), "r"(n) : "memory");
}
__device__ __forceinline__ void add(void* to, const void* from, int n) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0],[%1],%2;"
                 ::"l"(to), "r"(shared_address(from)), "r"(n) : "memory");
}
__device__ __forceinline__ void load2(void* to, const CUtensorMap* map, int x, int y, uint64_t* bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];"
                 ::"r"(shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(shared_address(bar)) : "memory");
}
__device__ __forceinline__ void store2(const CUtensorMap* map, const void* from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0,{%1,%2}],[%3];"
                 ::"l"(map), "r"(x), "r"(y), "r"(shared_address(from)) : "memory");
}
__device__ __forceinline__ void add2(const CUtensorMap* map, const void* from, int x, int y) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0,{%1,%2}],[%3];"
                 ::"l"(map), "r"(x), "r"(y), "r"(shared_address(from)) : "memory");
}
const int STAGES = 4;
// bulk copy in stages: a CTA's tiles of `bytes` each, one thread
K void ring(const char* from, char* to, int tiles, int bytes) {
    extern __shared__ __align__(128) char tile[];
    __shared__ alignas(8) uint64_t bars[STAGES];
    if (threadIdx.x) return;
    for (int i = 0; i < STAGES; i++) init(bars + i);
    fence();
    int step = gridDim.x, next = blockIdx.x;
    for (int i = 0; i < STAGES - 1; i++, next += step)
        if (next < tiles) { expect(bars + i, bytes); load(tile + i * bytes, from + (size_t)next * bytes, bytes, bars + i); }
    int stage = 0, parity = 0;
#pragma unroll 1
    for (int t = blockIdx.x; t < tiles; t += step, next += step) {
        wait(bars + stage, parity);
        store(to + (size_t)t * bytes, tile + stage * bytes, bytes);
        commit();
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        int freed = (stage + STAGES - 1) % STAGES;
        if (next < tiles) { expect(bars + freed, bytes); load(tile + freed * bytes, from + (size_t)next * bytes, bytes, bars + freed); }
        if (++stage == STAGES) { stage = 0; parity ^= 1; }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// the same with tiles of one size, which ptxas unrolls: addresses come by way of R2UR
K void unrolled(const char* from, char* to, int tiles) {
    extern __shared__ __align__(128) char tile[];
    __shared__ alignas(8) uint64_t bars[STAGES];
    if (threadIdx.x) return;
    for (int i = 0; i < STAGES; i++) init(bars + i);
    fence();
    int step = gridDim.x, next = blockIdx.x;
    for (int i = 0; i < STAGES - 1; i++, next += step)
        if (next < tiles) { expect(bars + i, 8192); load(tile + i * 8192, from + (size_t)next * 8192, 8192, bars + i); }
    int stage = 0, parity = 0;
    for (int t = blockIdx.x; t < tiles; t += step, next += step) {
        wait(bars + stage, parity);
        store(to + (size_t)t * 8192, tile + stage * 8192, 8192);
        commit();
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        int freed = (stage + STAGES - 1) & (STAGES - 1);
        if (next < tiles) { expect(bars + freed, 8192); load(tile + freed * 8192, from + (size_t)next * 8192, 8192, bars + freed); }
        if (++stage == STAGES) { stage = 0; parity ^= 1; }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// tensor copy: a box of each CTA, one thread
K void box(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int wide, int high, int bytes) {
    extern __shared__ __align__(128) char tile[];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x) return;
    init(&bar);
    fence();
    expect(&bar, bytes);
    load2(tile, &from, blockIdx.x * wide, blockIdx.y * high, &bar);
    wait(&bar, 0);
    store2(&to, tile, blockIdx.x * wide, blockIdx.y * high);
    commit();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// threads fill the tile, one thread hands it to the engine
K void staged(const float4* from, const __grid_constant__ CUtensorMap to, int wide) {
    __shared__ alignas(128) float4 tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = from[(size_t)blockIdx.x * 1024 + i];
    fence();
    __syncthreads();
    if (threadIdx.x) return;
    store2(&to, tile, 0, blockIdx.x * wide);
    commit();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
K void filled(const float4* from, float4* to) {
    __shared__ alignas(128) float4 tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = from[(size_t)blockIdx.x * 1024 + i];
    fence();
    __syncthreads();
    if (threadIdx.x) return;
    store(to + (size_t)blockIdx.x * 1024, tile, 16384);
    commit();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// what many CTAs add to the same `n` tiles
K void reduced(const float4* from, float4* to, int n) {
    __shared__ alignas(128) float4 tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = from[(size_t)blockIdx.x * 1024 + i];
    fence();
    __syncthreads();
    if (threadIdx.x) return;
    add(to + (size_t)(blockIdx.x % n) * 1024, tile, 16384);
    commit();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
K void reduced_box(const float4* from, const __grid_constant__ CUtensorMap to, int wide) {
    __shared__ alignas(128) float4 tile[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = from[(size_t)blockIdx.x * 1024 + i];
    fence();
    __syncthreads();
    if (threadIdx.x) return;
    add2(&to, tile, 0, blockIdx.x * wide);
    commit();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// the last tile is shorter: how much is written hangs on the CTA
K void tail(char* to, long n) {
    __shared__ alignas(128) int tile[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = i;
    fence();
    __syncthreads();
    if (threadIdx.x) return;
    long at = (long)blockIdx.x * 8192, left = n - at;
    store(to + at, tile, (int)(left < 8192 ? left : 8192));
    commit();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
