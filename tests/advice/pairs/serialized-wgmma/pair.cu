// The compiler waits for each product before the next, since a register of the sum could be read in between (ptxas:
// C7514); then it knows that none is, and one group of products may be pending.
#define FENCE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(n) : "memory")
__device__ __forceinline__ void product(float (&d)[32], unsigned long long a, unsigned long long b) {
    asm volatile("{\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        " %32, %33, 1, 1, 1, 0, 0;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}
template <bool FENCED> __device__ void multiply(float* y, int n) {
    __shared__ __align__(1024) char t[16384];
    float d[32];
    for (int j = 0; j < 32; ++j) d[j] = 0;
    unsigned long long at = static_cast<unsigned>(__cvta_generic_to_shared(t)) >> 4 & 0x3fff;
    unsigned long long a = at | 1ull << 16 | 64ull << 32 | 1ull << 62, b = a + 512;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        FENCE;
        product(d, a, b);
        product(d, a + 2, b + 2);
        COMMIT;
        WAIT(1);
    }
    WAIT(0);
    if (FENCED) {
#pragma unroll
        for (int j = 0; j < 32; ++j) asm volatile("" : "+f"(d[j])::"memory");
    }
    float s = 0;
    for (int j = 0; j < 32; ++j) s += d[j];
    y[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void faulty(float* y, int n) { multiply<false>(y, n); }
extern "C" __global__ void mended(float* y, int n) { multiply<true>(y, n); }
