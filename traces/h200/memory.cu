// Rates of the L2 and of the DRAM by access pattern. Prints CSV: test,parameters...,us,GB/s. One GPU, about 3 s.
#include <cstdio>
#include <cstdint>
#include <algorithm>
#include <vector>
#include <cuda_runtime.h>
#define CHECK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { printf("error,%s,%s\n", #x, cudaGetErrorString(e_)); exit(1); } } while (0)
typedef unsigned int u32;
static const size_t MIB = 1 << 20;
static u32* sink; static char* pool; static cudaEvent_t e0, e1;

__device__ __forceinline__ u32 fold(uint4 a) { return a.x ^ a.y ^ a.z ^ a.w; }
__device__ __forceinline__ u32 smid() { u32 s; asm volatile("mov.u32 %0,%%smid;" : "=r"(s)); return s; }

// Each group of CTAs walks over its own chunks (16 KB), `passes` times; after each pass groups move on by `rot` regions.
// mode 0: group by smid / share; 1: smid % groups; 3: `active` SMs spread over all
__global__ void __launch_bounds__(1024) l2_read(const uint4* p, u32* out, int share, int groups, int chunks, int passes, int rot, int mode, int active) {
  int id = smid();
  if (mode == 3 ? id && id * active / (int)gridDim.x == (id - 1) * active / (int)gridDim.x : id >= active) return;
  int g = mode == 1 ? id % groups : mode == 3 ? id * active / (int)gridDim.x : id / share;
  if (g >= groups) return;
  u32 s = 0;
  for (int r = 0; r < passes; r++) {
    const uint4* q = p + (size_t)((g + r * rot) % groups) * chunks * 1024 + threadIdx.x;
    #pragma unroll 1
    for (int c = 0; c < chunks; c += 4) {
      uint4 a = __ldcg(q), b = __ldcg(q + 1024), d = __ldcg(q + 2048), e = __ldcg(q + 3072);
      s ^= fold(a) ^ fold(b) ^ fold(d) ^ fold(e); q += 4096;
    }
  }
  if (s == 0x9e3779b9u) out[0] = s;
}
// R streams read, W written, grid-stride, `passes` times over n vectors each
template <int R, int W, typename V> __global__ void stream(const V* p, V* q, u32* out, size_t n, int passes) {
  u32 s = 0; size_t st = (size_t)gridDim.x * blockDim.x;
  for (int k = 0; k < passes; k++)
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += 2 * st) {
      V v[2][R + 1];
      #pragma unroll
      for (int j = 0; j < 2; j++)
        #pragma unroll
        for (int r = 0; r < R; r++) if (!j || i + st < n) v[j][r] = __ldcg(p + r * n + i + j * st);
      u32 t = s + k;
      #pragma unroll
      for (int j = 0; j < 2; j++)
        #pragma unroll
        for (int r = 0; r < R; r++) if (!j || i + st < n) t ^= *(const u32*)&v[j][r] ^ ((const u32*)&v[j][r])[sizeof(V) / 4 - 1];
      V w; for (int x = 0; x < (int)(sizeof(V) / 4); x++) ((u32*)&w)[x] = t + x;
      #pragma unroll
      for (int j = 0; j < 2; j++)
        #pragma unroll
        for (int r = 0; r < W; r++) if (!j || i + st < n) q[r * n + i + j * st] = w;
      s = t;
    }
  if (s == 0x9e3779b9u) out[0] = s;
}
// A tile of 128 rows a CTA, walked along the row by `b` bytes a step, cp.async with `stages` stages in flight
__global__ void __launch_bounds__(256) rows(const char* p, u32* out, int b, int stages, int pitch, int share) {
  extern __shared__ __align__(128) char sm[];
  const char* base = p + (size_t)(blockIdx.x / share) * 128 * pitch;
  u32 sa = (u32)__cvta_generic_to_shared(sm);
  int steps = pitch / b, per_row = b / 16, n = 128 * per_row, ahead = stages - 1;
  #define ISSUE(k) do { if ((k) < steps) for (int i = threadIdx.x; i < n; i += 256) { \
      const char* g = base + (size_t)(i / per_row) * pitch + (size_t)(k) * b + (i % per_row) * 16; \
      asm volatile("cp.async.cg.shared.global [%0],[%1],16;" :: "r"(sa + ((k) % stages) * n * 16 + i * 16), "l"(g) : "memory"); } \
      asm volatile("cp.async.commit_group;" ::: "memory"); } while (0)
  for (int k = 0; k < ahead; k++) ISSUE(k);
  for (int k = 0; k < steps; k++) {
    switch (ahead) {
      case 1: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
      case 2: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
      case 3: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
      case 5: asm volatile("cp.async.wait_group 4;" ::: "memory"); break;
      case 7: asm volatile("cp.async.wait_group 6;" ::: "memory"); break;
      default: asm volatile("cp.async.wait_group 14;" ::: "memory"); break;
    }
    __syncthreads(); ISSUE(k + ahead);
  }
  if (((u32*)sm)[threadIdx.x] == 0x9e3779b9u) out[0] = 1;
}
// Words at random places of a table; CG: not kept in the L1
template <int CG> __global__ void gather(const u32* p, u32* out, u32 mask, int n) {
  u32 x = (blockIdx.x * blockDim.x + threadIdx.x) * 2654435761u + 12345u, s = 0;
  for (int i = 0; i < n; i += 8) {
    u32 v[8];
    #pragma unroll
    for (int j = 0; j < 8; j++) { x = x * 1664525u + 1013904223u; u32 h = x ^ (x >> 15); h *= 0x2c1b3c6du; h ^= h >> 13; v[j] = CG ? __ldcg(p + (h & mask)) : __ldg(p + (h & mask)); }
    #pragma unroll
    for (int j = 0; j < 8; j++) s ^= v[j];
  }
  if (s == 0x9e3779b9u) out[0] = s;
}
// Stores of `words` words of each sector of 8
__global__ void partial(u32* q, size_t sectors, int words, int passes) {
  for (int k = 0; k < passes; k++)
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < sectors * words; i += (size_t)gridDim.x * blockDim.x)
      q[i / words * 8 + i % words] = (u32)i + k;
}
template <typename F> float time_us(F launch) {
  std::vector<float> t;
  for (int i = 0; i < 7; i++) {
    CHECK(cudaEventRecord(e0)); launch(); CHECK(cudaEventRecord(e1)); CHECK(cudaEventSynchronize(e1));
    float ms; CHECK(cudaEventElapsedTime(&ms, e0, e1)); if (i > 1) t.push_back(ms * 1e3f - 2.3f);
  }
  CHECK(cudaGetLastError()); std::sort(t.begin(), t.end()); return t[t.size() / 2];
}
static void show_l2(const char* name, int sms, int footprint_mib_x4, int share, int rot, int mode, int active) {
  int groups = std::max(1, active / share), chunks = (int)((size_t)footprint_mib_x4 * 64 / 4 * 1 / groups);
  chunks = std::max(4, chunks / 4 * 4); int passes = std::max(2, 32768 / (chunks * active));
  float us = time_us([&] { l2_read<<<sms, 1024>>>((const uint4*)pool, sink, share, groups, chunks, passes, rot, mode, active); });
  double bytes = 16384.0 * chunks * passes * groups * share;
  printf("%s,footprint_mib=%.2f,share=%d,rot=%d,mode=%d,sms=%d,%.2f,%.0f\n", name, groups * chunks / 64.0, share, rot, mode, active, us, bytes / us / 1e3);
}
template <int R, int W, typename V> static void show_stream(const char* name, size_t mib_each, int passes, int ctas) {
  size_t n = mib_each * MIB / sizeof(V); V* p = (V*)pool; V* q = p + R * n;
  float us = time_us([&] { stream<R, W, V><<<132 * ctas, 256>>>(p, q, sink, n, passes); });
  printf("%s,read=%d,write=%d,mib_each=%zu,width=%zu,ctas=%d,%.2f,%.0f\n", name, R, W, mib_each, sizeof(V), ctas, us, double(mib_each * MIB) * (R + W) * passes / us / 1e3);
}
int main() {
  cudaDeviceProp d; CHECK(cudaGetDeviceProperties(&d, 0)); int sms = d.multiProcessorCount;
  CHECK(cudaMalloc(&pool, 3072 * MIB)); CHECK(cudaMemset(pool, 1, 3072 * MIB)); CHECK(cudaMalloc(&sink, 4096));
  CHECK(cudaEventCreate(&e0)); CHECK(cudaEventCreate(&e1));
  printf("device,%s,%d\n", d.name, sms);
  for (int f : {32, 64, 96, 128, 160, 192}) for (int rot : {0, 1, 5}) show_l2("l2_own", sms, f, 1, rot, 0, sms);
  for (int f : {32, 96}) for (int mode : {0, 1}) for (int share : {2, 3, 4, 6, 11, 12, 22, 33, 44, 66, 132}) show_l2("l2_shared", sms, f, share, 0, mode, sms);
  for (int f : {400, 1600}) for (int mode : {0, 1}) for (int share : {1, 2, 4, 12, 33}) show_l2("dram_shared", sms, f, share, 0, mode, sms);
  for (int a : {1, 2, 4, 8, 16, 18, 33, 36, 54, 66, 81, 99, 116, 132}) for (int f : {32, 96}) for (int mode : {0, 3}) show_l2("l2_few", sms, f, 1, 0, mode, a);
  for (int m : {4, 8, 12, 16, 20}) { int k = 256 / m;
    show_stream<1, 0, uint4>("l2_stream", 2 * m, k, 4); show_stream<0, 1, uint4>("l2_stream", 2 * m, k, 4); show_stream<1, 1, uint4>("l2_stream", m, k, 4); show_stream<2, 1, uint4>("l2_stream", m, k, 4);
    show_stream<0, 1, u32>("l2_stream", 2 * m, k, 4); show_stream<1, 1, u32>("l2_stream", m, k, 4); }
  for (int ctas : {4, 8}) {
    show_stream<1, 0, uint4>("dram", 1024, 1, ctas); show_stream<3, 1, uint4>("dram", 256, 1, ctas); show_stream<2, 1, uint4>("dram", 256, 1, ctas); show_stream<1, 1, uint4>("dram", 512, 1, ctas);
    show_stream<1, 2, uint4>("dram", 256, 1, ctas); show_stream<0, 1, uint4>("dram", 1024, 1, ctas); show_stream<1, 0, u32>("dram", 1024, 1, ctas); show_stream<2, 1, u32>("dram", 256, 1, ctas); show_stream<1, 1, u32>("dram", 512, 1, ctas); }
  for (int mib : {64, 128, 2048}) { show_stream<1, 0, uint4>("dram_size", mib, 1, 8); show_stream<1, 1, uint4>("dram_size", mib / 2, 1, 8); }
  CHECK(cudaFuncSetAttribute(rows, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  for (int pitch : {8192, 28672}) for (int b : {32, 64, 128, 256, 512}) for (int stages : {2, 3, 4, 6, 8, 16}) {
    int bytes = 128 * b * stages; if (bytes > 200 * 1024 || bytes < 12 * 1024) continue;
    int ctas = sms * std::min(4, 200 * 1024 / (bytes + 1024));
    float us = time_us([&] { rows<<<ctas, 256, bytes>>>(pool, sink, b, stages, pitch, 1); });
    printf("rows,pitch=%d,row_bytes=%d,stages=%d,ctas=%d,flight_kb=%d,%.2f,%.0f\n", pitch, b, stages, ctas, bytes / 1024 * ctas / sms, us, 128.0 * pitch * ctas / us / 1e3);
  }
  for (int share : {2, 4}) for (int b : {64, 128}) {
    int bytes = 128 * b * 4, ctas = sms * 2;
    float us = time_us([&] { rows<<<ctas, 256, bytes>>>(pool, sink, b, 4, 8192, share); });
    printf("rows_shared,share=%d,row_bytes=%d,stages=4,ctas=%d,flight_kb=%d,%.2f,%.0f\n", share, b, ctas, bytes / 1024 * 2, us, 128.0 * 8192 * ctas / us / 1e3);
  }
  for (size_t mib : {1, 4, 8, 16, 32, 64, 128, 512, 2048}) {
    u32 mask = (u32)(mib * MIB / 4 - 1); double loads = 132.0 * 8 * 256 * 64;
    float a = time_us([&] { gather<1><<<132 * 8, 256>>>((const u32*)pool, sink, mask, 64); });
    float b = time_us([&] { gather<0><<<132 * 8, 256>>>((const u32*)pool, sink, mask, 64); });
    printf("gather,table_mib=%zu,cg,%.2f,%.1f\ngather,table_mib=%zu,ldg,%.2f,%.1f\n", mib, a, loads * 32 / a / 1e3, mib, b, loads * 32 / b / 1e3);
  }
  for (size_t mib : {8, 16, 512}) for (int words : {1, 2, 4, 8}) {
    size_t sectors = mib * MIB / 32; int passes = mib > 64 ? 1 : 8;
    float us = time_us([&] { partial<<<132 * 8, 256>>>((u32*)pool, sectors, words, passes); });
    printf("partial,mib=%zu,words=%d,%.2f,%.0f\n", mib, words, us, double(sectors) * 32 * passes / us / 1e3);
  }
  return 0;
}
