// Timelines of CTAs of small launches: ramp, turnover, first touch, cold code. JSON lines to stdout.
#include <algorithm>
#include <cstdio>
#include <cstdint>
#include <vector>
#define CHECK(x) do { cudaError_t e = (x); if (e != cudaSuccess) { printf("{\"error\": \"%s line %d\"}\n", cudaGetErrorString(e), __LINE__); return 1; } } while (0)

struct Record { unsigned long long start_ns, end_ns, start_clk, end_clk; unsigned sm, cta, pad0, pad1; };

__device__ __forceinline__ unsigned long long now_ns() { unsigned long long t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
__device__ __forceinline__ unsigned sm_id() { unsigned s; asm volatile("mov.u32 %0, %%smid;" : "=r"(s)); return s; }

__global__ void spin(Record* out, int cycles) {
    extern __shared__ int room[];
    if (threadIdx.x == 0) {
        unsigned long long ns = now_ns();
        long long t0 = clock64();
        while (clock64() - t0 < cycles) {}
        long long t1 = clock64();
        Record r{ns, now_ns(), (unsigned long long)t0, (unsigned long long)t1, sm_id(), blockIdx.x, 0, 0};
        out[blockIdx.x] = r;
    }
    if (cycles < 0) room[threadIdx.x] = 1;
}

// One warp: latency of successive loads; places are words apart as `stride` says.
__global__ void touch(const unsigned* data, size_t cta_stride, size_t step, unsigned* out, int n) {
    const unsigned* p = data + blockIdx.x * cta_stride + threadIdx.x;
    unsigned sum = 0;
    for (int i = 0; i < n; ++i) {
        long long t0 = clock64();
        unsigned v = __ldcg(p + i * step);
        sum += v;
        asm volatile("" :: "r"(sum) : "memory");
        long long t1 = clock64() + (v == 0xffffffffu);
        if (threadIdx.x == 0) out[blockIdx.x * n + i] = (unsigned)(t1 - t0);
    }
    if (sum == 0x12345u) out[0] = sum;
}

template <int N> __global__ void code(float* out, unsigned* cycles) {
    float a = threadIdx.x, b = 1.0001f, c = 0.5f;
    for (int pass = 0; pass < 3; ++pass) {
        long long t0 = clock64();
#pragma unroll
        for (int i = 0; i < N; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(a) : "f"(b), "f"(c));
        long long t1 = clock64();
        if (threadIdx.x == 0) cycles[blockIdx.x * 3 + pass] = (unsigned)(t1 - t0);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = a;
}

template <class T> T at(std::vector<T> v, double share) { if (v.empty()) return T(); std::sort(v.begin(), v.end()); return v[std::min(v.size() - 1, (size_t)(share * v.size()))]; }

int measure_spin(int grid, int block, int shared, int cycles, Record* dev) {
    std::vector<Record> all(grid);
    cudaFuncSetAttribute(spin, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
    cudaStream_t s; cudaStreamCreate(&s);
    cudaGraph_t g; cudaGraphExec_t ge;
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    const int nodes = 40;
    for (int i = 0; i < nodes; ++i) spin<<<grid, block, shared, s>>>(dev, cycles);
    cudaStreamEndCapture(s, &g); cudaGraphInstantiate(&ge, g, 0);
    std::vector<float> times;
    for (int i = 0; i < 7; ++i) { cudaEventRecord(a, s); cudaGraphLaunch(ge, s); cudaEventRecord(b, s); cudaEventSynchronize(b); float ms; cudaEventElapsedTime(&ms, a, b); times.push_back(ms * 1000 / nodes); }
    CHECK(cudaMemcpy(all.data(), dev, grid * sizeof(Record), cudaMemcpyDeviceToHost));
    unsigned long long first = ~0ull, last = 0;
    for (auto& r : all) { first = std::min(first, r.start_ns); last = std::max(last, r.end_ns); }
    std::vector<std::vector<Record>> by_sm(256);
    for (auto& r : all) by_sm[r.sm & 255].push_back(r);
    std::vector<long long> gaps, intervals, ramp, counts, lives;
    for (auto& one : by_sm) {
        if (one.empty()) continue;
        std::sort(one.begin(), one.end(), [](const Record& x, const Record& y) { return x.start_clk < y.start_clk; });
        counts.push_back(one.size()); ramp.push_back(one[0].start_ns - first);
        std::vector<unsigned long long> ends; for (auto& r : one) { ends.push_back(r.end_clk); lives.push_back(r.end_clk - r.start_clk); }
        std::sort(ends.begin(), ends.end());
        size_t slots = 0; while (slots < one.size() && one[slots].start_clk < ends[0]) ++slots;
        for (size_t i = 1; i < slots; ++i) intervals.push_back(one[i].start_clk - one[i - 1].start_clk);
        for (size_t i = slots; i < one.size(); ++i) gaps.push_back((long long)one[i].start_clk - (long long)ends[i - slots]);
    }
    printf("{\"kind\": \"spin\", \"grid\": %d, \"block\": %d, \"shared\": %d, \"cycles\": %d, \"node_us\": %.3f, \"span_ns\": %llu, \"sms\": %zu, \"most_ctas\": %lld, "
           "\"ramp_ns\": [%lld, %lld, %lld], \"start_interval_cycles\": [%lld, %lld, %lld], \"turnover_cycles\": [%lld, %lld, %lld], \"life_cycles\": %lld}\n",
           grid, block, shared, cycles, at(times, .5), last - first, counts.size(), at(counts, 1.0), at(ramp, .1), at(ramp, .5), at(ramp, 1.0),
           at(intervals, .1), at(intervals, .5), at(intervals, .9), at(gaps, .1), at(gaps, .5), at(gaps, .9), at(lives, .5));
    cudaGraphExecDestroy(ge); cudaGraphDestroy(g); cudaStreamDestroy(s);
    return 0;
}

int measure_touch(const char* name, unsigned* data, size_t cta_stride, size_t step, int n, unsigned* out, int grid) {
    for (int launch = 0; launch < 4; ++launch) touch<<<grid, 32>>>(data, cta_stride, step, out, n);
    CHECK(cudaDeviceSynchronize());
    std::vector<unsigned> all(grid * n);
    CHECK(cudaMemcpy(all.data(), out, all.size() * 4, cudaMemcpyDeviceToHost));
    printf("{\"kind\": \"touch\", \"name\": \"%s\", \"grid\": %d, \"cycles\": [", name, grid);
    for (int i = 0; i < n; ++i) { std::vector<unsigned> one; for (int c = 0; c < grid; ++c) one.push_back(all[c * n + i]); printf("%s[%u, %u]", i ? ", " : "", at(one, .5), at(one, .95)); }
    printf("]}\n");
    return 0;
}

template <int N> int measure_code(float* f, unsigned* out, int grid, int block) {
    std::vector<unsigned> all(grid * 3);
    for (int launch = 0; launch < 4; ++launch) code<N><<<grid, block>>>(f, out);
    CHECK(cudaMemcpy(all.data(), out, all.size() * 4, cudaMemcpyDeviceToHost));
    printf("{\"kind\": \"code\", \"instructions\": %d, \"grid\": %d, \"block\": %d, \"cycles\": [", N, grid, block);
    for (int p = 0; p < 3; ++p) { std::vector<unsigned> one; for (int c = 0; c < grid; ++c) one.push_back(all[c * 3 + p]); printf("%s%u", p ? ", " : "", at(one, .5)); }
    printf("]}\n");
    return 0;
}

int main() {
    Record* dev; unsigned *out, *data; float* f;
    CHECK(cudaMalloc(&dev, sizeof(Record) * 100000)); CHECK(cudaMalloc(&out, 1 << 20)); CHECK(cudaMalloc(&f, 1 << 22));
    const size_t bytes = size_t(1) << 30; CHECK(cudaMalloc(&data, bytes)); CHECK(cudaMemset(data, 1, bytes));
    for (int i = 0; i < 50; ++i) spin<<<132, 32>>>(dev, 20000);
    for (int cycles : {200, 2000, 10000})
        for (int block : {32, 256, 1024})
            for (int grid : {1, 132, 133, 264, 528, 1056, 2112, 4224})
                if (measure_spin(grid, block, 0, cycles, dev)) return 1;
    for (int cycles : {2000, 10000})
        for (int shared : {49152, 100000, 200000})
            for (int grid : {132, 264, 396, 528, 1056})
                if (measure_spin(grid, 128, shared, cycles, dev)) return 1;
    const size_t page = (2u << 20) / 4;
    measure_touch("same page, next lines", data, 1024, 32, 6, out, 132);
    measure_touch("pages of 2 MiB, all CTAs the same", data, 0, page, 6, out, 132);
    measure_touch("pages of 2 MiB, each CTA its own", data, 32, page + 32 * 200, 6, out, 132);
    measure_touch("one SM, next lines", data, 1024, 32, 6, out, 1);
    for (int block : {32, 128, 512}) {
        if (measure_code<256>(f, out, 132, block) || measure_code<1024>(f, out, 132, block) || measure_code<4096>(f, out, 132, block)) return 1;
    }
    CHECK(cudaDeviceSynchronize());
    return 0;
}
