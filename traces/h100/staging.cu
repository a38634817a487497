// Micro-benchmarks for warplens issue 48, part t1: a ladder of mma.sync products by how tiles are staged;
// LDGSTS by row length; L2 rate by busy SMs; local memory beside shared memory; STS beside HMMA. JSON lines.
// nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o staging staging.cu && ./staging > staging.jsonl
#include <cuda_fp16.h>
#include <cstdio>
#include <cstdint>
#include <vector>
#include <algorithm>

#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \
    printf("{\"error\": \"%s\", \"line\": %d}\n", cudaGetErrorString(e), __LINE__); cudaGetLastError(); } } while (0)

struct Span { long long start, end; unsigned sm; unsigned pad; };
enum Loader { REG = 0, REG_PREFETCH = 1, REG_DOUBLE = 2, CP_ASYNC = 3 };

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mma(float* d, const unsigned* a, const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void ldsm4(unsigned* r, unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
}
__device__ __forceinline__ void record(Span* spans, long long start) {
    if (spans && threadIdx.x == 0) {
        unsigned sm; asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        spans[blockIdx.x + gridDim.x * blockIdx.y] = {start, clock64(), sm, 0};
    }
}

// C[M,N] = A[M,K] B[N,K]^T, half in, float sums, half out; warps WM x WN; FRAG 0: ldmatrix, 1: 32-bit shared loads.
template <int BM, int BN, int BK, int WM, int WN, int LOADER, int STAGES, int FRAG>
__global__ void __launch_bounds__(WM * WN * 32) product(const half* A, const half* B, half* C, int M, int N, int K, Span* spans) {
    const long long start = clock64();
    extern __shared__ uint4 memory[];
    constexpr int T = WM * WN * 32, ROW = BK + 8, CHUNKS = BK / 8;
    constexpr int BUFFERS = LOADER == REG_DOUBLE ? 2 : LOADER == CP_ASYNC ? STAGES : 1;
    half* sa = (half*)memory;
    half* sb = sa + BUFFERS * BM * ROW;
    const int t = threadIdx.x, warp = t / 32, lane = t % 32;
    const int wm = warp / WN * (BM / WM), wn = warp % WN * (BN / WN);
    constexpr int MT = BM / WM / 16, NT = BN / WN / 8;
    const half* ga = A + (size_t)blockIdx.y * BM * K;
    const half* gb = B + (size_t)blockIdx.x * BN * K;
    constexpr int AL = BM * CHUNKS / T, BL = BN * CHUNKS / T;
    float acc[MT][NT][4] = {};
    uint4 ra[AL], rb[BL];
    auto load = [&](int k) {
        for (int i = 0; i < AL; ++i) { int c = t + i * T; ra[i] = *(const uint4*)(ga + (size_t)(c / CHUNKS) * K + k + c % CHUNKS * 8); }
        for (int i = 0; i < BL; ++i) { int c = t + i * T; rb[i] = *(const uint4*)(gb + (size_t)(c / CHUNKS) * K + k + c % CHUNKS * 8); }
    };
    auto store = [&](int s) {
        for (int i = 0; i < AL; ++i) { int c = t + i * T; *(uint4*)(sa + s * BM * ROW + c / CHUNKS * ROW + c % CHUNKS * 8) = ra[i]; }
        for (int i = 0; i < BL; ++i) { int c = t + i * T; *(uint4*)(sb + s * BN * ROW + c / CHUNKS * ROW + c % CHUNKS * 8) = rb[i]; }
    };
    auto copy = [&](int s, int k) {
        for (int i = 0; i < AL; ++i) { int c = t + i * T;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(sa + s * BM * ROW + c / CHUNKS * ROW + c % CHUNKS * 8)), "l"(ga + (size_t)(c / CHUNKS) * K + k + c % CHUNKS * 8)); }
        for (int i = 0; i < BL; ++i) { int c = t + i * T;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(sb + s * BN * ROW + c / CHUNKS * ROW + c % CHUNKS * 8)), "l"(gb + (size_t)(c / CHUNKS) * K + k + c % CHUNKS * 8)); }
        asm volatile("cp.async.commit_group;");
    };
    auto compute = [&](int s) {
        const half* pa = sa + s * BM * ROW + wm * ROW;
        const half* pb = sb + s * BN * ROW + wn * ROW;
#pragma unroll
        for (int k = 0; k < BK; k += 16) {
            unsigned a[MT][4], b[NT][2];
            if (FRAG == 0) {
                for (int i = 0; i < MT; ++i) ldsm4(a[i], shared_address(pa + (16 * i + lane % 16) * ROW + k + lane / 16 * 8));
                for (int j = 0; j < NT; j += 2) ldsm4(b[j], shared_address(pb + (8 * j + lane / 16 * 8 + lane % 8) * ROW + k + lane / 8 % 2 * 8));
            } else {
                const int g = lane / 4, q = lane % 4 * 2;
                for (int i = 0; i < MT; ++i) for (int h = 0; h < 4; ++h) a[i][h] = *(const unsigned*)(pa + (16 * i + g + h % 2 * 8) * ROW + k + q + h / 2 * 8);
                for (int j = 0; j < NT; ++j) for (int h = 0; h < 2; ++h) b[j][h] = *(const unsigned*)(pb + (8 * j + g) * ROW + k + q + h * 8);
            }
            for (int i = 0; i < MT; ++i) for (int j = 0; j < NT; ++j) mma(acc[i][j], a[i], b[j]);
        }
    };
    if (LOADER == REG) {
        for (int k = 0; k < K; k += BK) { load(k); store(0); __syncthreads(); compute(0); __syncthreads(); }
    } else if (LOADER == REG_PREFETCH) {
        load(0); store(0); __syncthreads();
        for (int k = 0; k < K; k += BK) {
            if (k + BK < K) load(k + BK);
            compute(0); __syncthreads();
            if (k + BK < K) store(0);
            __syncthreads();
        }
    } else if (LOADER == REG_DOUBLE) {
        load(0); store(0); __syncthreads();
        int s = 0;
        for (int k = 0; k < K; k += BK) {
            if (k + BK < K) load(k + BK);
            compute(s); s ^= 1;
            if (k + BK < K) store(s);
            __syncthreads();
        }
    } else if (STAGES == 1) {
        for (int k = 0; k < K; k += BK) {
            copy(0, k); asm volatile("cp.async.wait_group 0;"); __syncthreads(); compute(0); __syncthreads();
        }
    } else {
        for (int s = 0; s < STAGES - 1; ++s) copy(s, s * BK);
        int s = 0;
        for (int k = 0; k < K; k += BK) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES >= 2 ? STAGES - 2 : 0)); __syncthreads();
            const int next = k + (STAGES - 1) * BK;
            if (next < K) copy((s + STAGES - 1) % STAGES, next); else asm volatile("cp.async.commit_group;");
            compute(s); s = (s + 1) % STAGES;
        }
    }
    const int g = lane / 4, q = lane % 4 * 2;
    for (int i = 0; i < MT; ++i) for (int j = 0; j < NT; ++j) {
        half* c = C + (size_t)(blockIdx.y * BM + wm + 16 * i + g) * N + blockIdx.x * BN + wn + 8 * j + q;
        *(half2*)c = __floats2half2_rn(acc[i][j][0], acc[i][j][1]);
        *(half2*)(c + 8 * (size_t)N) = __floats2half2_rn(acc[i][j][2], acc[i][j][3]);
    }
    record(spans, start);
}

// Each warp copies 512 bytes per LDGSTS as rows of ROW_BYTES, whose starts lie `pitch` bytes apart.
template <int ROW_BYTES, bool TO_REGISTERS>
__global__ void copies(const char* from, size_t pitch, size_t mask, int rounds, Span* spans, int* sink) {
    extern __shared__ uint4 memory[];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const unsigned to = shared_address(memory) + t * 16;
    size_t at = (size_t)blockIdx.x * 40960 + (size_t)warp * (512 / ROW_BYTES) * pitch + lane * 16 / ROW_BYTES * pitch + lane * 16 % ROW_BYTES;
    const size_t step = (size_t)(blockDim.x / 32) * (512 / ROW_BYTES) * pitch;
    uint4 sum = {};
    __syncthreads();
    const long long start = clock64();
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const char* p = from + (at & mask);
            if (TO_REGISTERS) { uint4 v; asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p)); sum.x ^= v.x ^ v.y ^ v.z ^ v.w; }
            else asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(p));
            at += step;
        }
        if (!TO_REGISTERS) { asm volatile("cp.async.commit_group;"); asm volatile("cp.async.wait_group 3;"); }
    }
    if (!TO_REGISTERS) asm volatile("cp.async.wait_group 0;");
    if (sum.x == 12345u) *sink = 1;
    __syncthreads();
    record(spans, start);
}

// Each thread writes and reads WORDS words of local memory, 4 or 16 bytes at a time; MODE 1: stores, 2: loads, 3: both.
template <int WORDS, int MODE, int WIDTH>
__global__ void locals(int rounds, int zero, Span* spans, int* sink) {
    volatile int frame[WORDS + 4];
    int sum = 0;
    for (int i = 0; i < WORDS; ++i) frame[(i + zero) % WORDS] = i;
    uint64_t base; { int* p = const_cast<int*>(&frame[0]); asm("cvta.to.local.u64 %0, %1;" : "=l"(base) : "l"((uint64_t)p)); }
    base = (base + 15) & ~15ull;
    __syncthreads();
    const long long start = clock64();
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int i = 0; i < WORDS; i += WIDTH) {
            if (MODE & 1) {
                if (WIDTH == 4) asm volatile("st.local.v4.u32 [%0], {%1,%1,%1,%1};" ::"l"(base + i * 4), "r"(r));
                else asm volatile("st.local.u32 [%0], %1;" ::"l"(base + i * 4), "r"(r));
            }
        }
#pragma unroll
        for (int i = 0; i < WORDS; i += WIDTH) {
            if (MODE & 2) {
                int a, b, c, d;
                if (WIDTH == 4) { asm volatile("ld.local.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(base + i * 4)); sum ^= a ^ b ^ c ^ d; }
                else { asm volatile("ld.local.u32 %0, [%1];" : "=r"(a) : "l"(base + i * 4)); sum ^= a; }
            }
        }
    }
    if (sum == 123456789) *sink = 1;
    __syncthreads();
    record(spans, start);
}

// RATIO products after each ldmatrix.x4, ILP independent sums: what tensor cores and shared memory leave each other.
template <int LOADS, int PRODUCTS, bool STORES>
__global__ void mixture(int rounds, Span* spans, float* sink) {
    __shared__ uint4 memory[1024];
    const int t = threadIdx.x;
    memory[t % 1024] = {1u, 2u, 3u, 4u};
    __syncthreads();
    const unsigned at = shared_address(memory) + t % 32 * 16;
    unsigned f[8][4] = {};
    float acc[16][4] = {};
    const long long start = clock64();
    for (int r = 0; r < rounds; ++r) {
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            if (STORES) asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at + i * 512), "r"(f[i % 8][0]), "r"(f[i % 8][1]), "r"(f[i % 8][2]), "r"(f[i % 8][3]));
            else ldsm4(f[i % 8], at + i * 512);
        }
#pragma unroll
        for (int i = 0; i < PRODUCTS; ++i) mma(acc[i % 16], f[i % 4], f[4 + i % 4]);
    }
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
    if (sum == 1.2345f) *sink = sum;
    __syncthreads();
    record(spans, start);
}


static Span* d_spans; static int* d_sink; static char* d_data;
static cudaEvent_t e0, e1;

template <typename F> void measure(const char* name, int ctas, int repeats, F launch) {
    std::vector<float> times; std::vector<double> cycles, ctas_cycles;
    std::vector<Span> spans(ctas);
    for (int r = 0; r < repeats + 1; ++r) {
        cudaEventRecord(e0); launch(); cudaEventRecord(e1);
        cudaError_t e = cudaEventSynchronize(e1); if (e == cudaSuccess) e = cudaGetLastError();
        if (e != cudaSuccess) { printf("{\"name\": \"%s\", \"error\": \"%s\"}\n", name, cudaGetErrorString(e)); cudaGetLastError(); return; }
        if (!r) continue;
        float ms; cudaEventElapsedTime(&ms, e0, e1); times.push_back(ms * 1e3f);
        cudaMemcpy(spans.data(), d_spans, ctas * sizeof(Span), cudaMemcpyDeviceToHost);
        std::vector<long long> first(1024, INT64_MAX), last(1024, 0); double longest = 0, mean = 0;
        for (auto& s : spans) { first[s.sm] = std::min(first[s.sm], s.start); last[s.sm] = std::max(last[s.sm], s.end); mean += double(s.end - s.start) / ctas; }
        for (int i = 0; i < 1024; ++i) if (last[i]) longest = std::max(longest, double(last[i] - first[i]));
        cycles.push_back(longest); ctas_cycles.push_back(mean);
    }
    auto median = [](auto v) { std::sort(v.begin(), v.end()); return (double)v[v.size() / 2]; };
    printf("{\"name\": \"%s\", \"ctas\": %d, \"event_us\": %.2f, \"sm_cycles\": %.0f, \"cta_cycles\": %.0f}\n", name, ctas, median(times), median(cycles), median(ctas_cycles));
    fflush(stdout);
}

template <int BM, int BN, int BK, int WM, int WN, int LOADER, int STAGES, int FRAG> void ladder() {
    auto kernel = product<BM, BN, BK, WM, WN, LOADER, STAGES, FRAG>;
    constexpr int BUFFERS = LOADER == REG_DOUBLE ? 2 : LOADER == CP_ASYNC ? STAGES : 1;
    const int bytes = BUFFERS * (BM + BN) * (BK + 8) * 2;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    int resident = 0; CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, WM * WN * 32, bytes));
    const int shapes[4][3] = {{4096, 4096, 2048}, {2048, 2048, 2048}, {1024, 1024, 4096}, {512, 1024, 4096}};
    for (auto& s : shapes) {
        char name[160];
        snprintf(name, sizeof name, "product/%dx%dx%d/%dx%dx%d_w%dx%d_l%d_s%d_f%d/r%d", s[0], s[1], s[2], BM, BN, BK, WM, WN, LOADER, STAGES, FRAG, resident);
        dim3 grid(s[1] / BN, s[0] / BM);
        half* A = (half*)d_data; half* B = A + (32 << 20); half* C = B + (32 << 20);
        measure(name, grid.x * grid.y, 5, [&] { kernel<<<grid, WM * WN * 32, bytes>>>(A, B, C, s[0], s[1], s[2], d_spans); });
    }
}

template <int ROW_BYTES, bool R> void copy_rows() {
    for (int ctas : {1, 132}) for (int warps : {4, 8, 16}) {
        char name[100]; snprintf(name, sizeof name, "copies/row%d/%s/w%d", ROW_BYTES, R ? "ldg" : "ldgsts", warps);
        measure(name, ctas, 3, [&] { copies<ROW_BYTES, R><<<ctas, warps * 32, 32768>>>(d_data, 8192, (8 << 20) - 1, 64, d_spans, d_sink); });
    }
}

template <int WORDS, int MODE, int WIDTH> void local_rows() {
    auto kernel = locals<WORDS, MODE, WIDTH>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 220 << 10));
    for (int kib : {0, 160, 220}) for (int ctas : {1, 132}) {
        char name[100]; snprintf(name, sizeof name, "locals/words%d/mode%d/width%d/shared%d", WORDS, MODE, WIDTH, kib);
        measure(name, ctas, 3, [&] { kernel<<<ctas, 128, kib << 10>>>(50, 0, d_spans, d_sink); });
    }
}

template <int LOADS, int PRODUCTS, bool STORES> void mix() {
    for (int warps : {4, 8, 16}) {
        char name[100]; snprintf(name, sizeof name, "mixture/%s%d/mma%d/w%d", STORES ? "sts" : "ldsm", LOADS, PRODUCTS, warps);
        measure(name, 132, 3, [&] { mixture<LOADS, PRODUCTS, STORES><<<132, warps * 32>>>(200, d_spans, (float*)d_sink); });
    }
}

int main() {
    CHECK(cudaMalloc(&d_spans, sizeof(Span) << 16)); CHECK(cudaMalloc(&d_sink, 256)); CHECK(cudaMalloc(&d_data, 256 << 20));
    CHECK(cudaMemset(d_data, 0x2c, 256 << 20));  // halves near 0.065
    cudaEventCreate(&e0); cudaEventCreate(&e1);
    // by loader, 128 x 128 x 32, 8 warps
    ladder<128, 128, 32, 2, 4, REG, 1, 0>(); ladder<128, 128, 32, 2, 4, REG_PREFETCH, 1, 0>(); ladder<128, 128, 32, 2, 4, REG_DOUBLE, 1, 0>();
    ladder<128, 128, 32, 2, 4, CP_ASYNC, 1, 0>(); ladder<128, 128, 32, 2, 4, CP_ASYNC, 2, 0>(); ladder<128, 128, 32, 2, 4, CP_ASYNC, 3, 0>(); ladder<128, 128, 32, 2, 4, CP_ASYNC, 4, 0>();
    ladder<128, 128, 32, 2, 4, REG, 1, 1>(); ladder<128, 128, 32, 2, 4, CP_ASYNC, 1, 1>(); ladder<128, 128, 32, 2, 4, CP_ASYNC, 3, 1>();
    ladder<128, 128, 64, 2, 4, REG, 1, 0>(); ladder<128, 128, 64, 2, 4, CP_ASYNC, 1, 0>(); ladder<128, 128, 64, 2, 4, CP_ASYNC, 2, 0>(); ladder<128, 128, 64, 2, 4, CP_ASYNC, 3, 0>();
    ladder<128, 128, 32, 2, 2, REG, 1, 0>(); ladder<128, 128, 32, 2, 2, CP_ASYNC, 1, 0>(); ladder<128, 128, 32, 2, 2, CP_ASYNC, 3, 0>();
    // small tiles, many CTAs
    ladder<64, 64, 32, 2, 2, REG, 1, 0>(); ladder<64, 64, 32, 2, 2, REG_PREFETCH, 1, 0>(); ladder<64, 64, 32, 2, 2, CP_ASYNC, 1, 0>(); ladder<64, 64, 32, 2, 2, CP_ASYNC, 2, 0>(); ladder<64, 64, 32, 2, 2, CP_ASYNC, 3, 0>();
    ladder<64, 64, 64, 2, 2, REG, 1, 0>(); ladder<64, 64, 64, 2, 2, CP_ASYNC, 1, 0>(); ladder<64, 64, 64, 2, 2, CP_ASYNC, 2, 0>();
    ladder<64, 64, 16, 2, 2, REG, 1, 0>(); ladder<64, 64, 16, 2, 2, CP_ASYNC, 1, 0>();
    ladder<256, 128, 32, 4, 2, REG_PREFETCH, 1, 0>(); ladder<256, 128, 32, 4, 2, CP_ASYNC, 1, 0>(); ladder<256, 128, 32, 4, 2, CP_ASYNC, 3, 0>();
    ladder<128, 64, 32, 2, 2, REG, 1, 0>(); ladder<128, 64, 32, 2, 2, CP_ASYNC, 1, 0>(); ladder<128, 64, 32, 2, 2, CP_ASYNC, 4, 0>();
    copy_rows<32, false>(); copy_rows<64, false>(); copy_rows<128, false>(); copy_rows<256, false>(); copy_rows<512, false>();
    copy_rows<64, true>(); copy_rows<128, true>(); copy_rows<512, true>();
    for (int ctas : {1, 8, 16, 32, 48, 64, 80, 96, 112, 132, 264}) for (int shared = 0; shared < 2; ++shared) {
        char name[100]; snprintf(name, sizeof name, "l2rate/ldgsts/%s", shared ? "same" : "apart");
        measure(name, ctas, 3, [&] { copies<128, false><<<ctas, 512, 32768>>>(d_data, 128, shared ? (1 << 18) - 1 : (16 << 20) - 1, 64, d_spans, d_sink); });
        snprintf(name, sizeof name, "l2rate/ldg/%s", shared ? "same" : "apart");
        measure(name, ctas, 3, [&] { copies<128, true><<<ctas, 512, 32768>>>(d_data, 128, shared ? (1 << 18) - 1 : (16 << 20) - 1, 64, d_spans, d_sink); });
    }
    local_rows<16, 1, 4>(); local_rows<16, 2, 4>(); local_rows<16, 3, 4>();
    local_rows<64, 1, 4>(); local_rows<64, 2, 4>(); local_rows<64, 3, 4>(); local_rows<64, 1, 1>(); local_rows<64, 2, 1>(); local_rows<64, 3, 1>();
    local_rows<128, 3, 4>(); local_rows<256, 1, 4>(); local_rows<256, 2, 4>(); local_rows<256, 3, 4>();
    mix<0, 16, false>(); mix<2, 16, false>(); mix<4, 16, false>(); mix<8, 16, false>(); mix<16, 16, false>(); mix<8, 0, false>(); mix<4, 8, false>(); mix<8, 8, false>();
    mix<2, 16, true>(); mix<4, 16, true>(); mix<8, 16, true>(); mix<8, 0, true>();
    return 0;
}
