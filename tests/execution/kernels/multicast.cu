// C = A B' in BF16 by clusters of CTAs, one above the other: each copies its tile of A, and a part of their
// common tile of B that goes to all of them. nvcc -O3 -cubin -arch=sm_90a
#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>

constexpr int kRows = 128, kColumns = 64, kDepth = 64, kStages = 4, kAccumulators = kColumns / 2;
constexpr uint32_t kTileA = kRows * kDepth * 2, kTileB = kColumns * kDepth * 2, kStage = kTileA + kTileB;

__device__ uint32_t shared(const void *place) { return static_cast<uint32_t>(__cvta_generic_to_shared(place)); }

__device__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\n"
               "bra again;\ndone:\n}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ uint64_t described(uint32_t tile) {
  return uint64_t((tile & 0x3FFFF) >> 4) | 1ULL << 16 | 64ULL << 32 | 1ULL << 62;
}

__device__ void multiply(float (&sum)[kAccumulators], uint64_t a, uint64_t b, int adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
      "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, "
      "%29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]), "+f"(sum[6]), "+f"(sum[7]),
        "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]), "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]),
        "+f"(sum[16]), "+f"(sum[17]), "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]),
        "+f"(sum[23]), "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
        "+f"(sum[30]), "+f"(sum[31])
      : "l"(a), "l"(b), "r"(adds));
}

template <int kCtas>
__device__ void products(const CUtensorMap *a, const CUtensorMap *b, float *c, int n, int k) {
  extern __shared__ __align__(1024) char buffers[];
  __shared__ uint64_t full[kStages], empty[kStages];
  const uint32_t base = shared(buffers), filled = shared(full), freed = shared(empty);
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, steps = k / kDepth;
  const int place = blockIdx.x % kCtas, column = blockIdx.x / kCtas * kColumns;
  const int row = (blockIdx.y * kCtas + place) * kRows;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(filled + 8 * s));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(freed + 8 * s), "r"(2 * kCtas));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (group == 2) {
    if (thread == 0) {
      for (int step = 0; step < steps; ++step) {
        const int s = step % kStages;
        const uint32_t tile = base + s * kStage, barrier = filled + 8 * s;
        wait(freed + 8 * s, (step / kStages & 1) ^ 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kStage) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(tile), "l"(a), "r"(step * kDepth), "r"(row), "r"(barrier) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(tile + kTileA + place * (kTileB / kCtas)), "l"(b),
                     "r"(step * kDepth), "r"(column + place * (kColumns / kCtas)), "r"(barrier),
                     "h"(static_cast<uint16_t>((1 << kCtas) - 1)) : "memory");
      }
    }
  } else {
    float sum[kAccumulators];
    for (int step = 0; step < steps; ++step) {
      const int s = step % kStages;
      const uint32_t tile = base + s * kStage;
      wait(filled + 8 * s, step / kStages & 1);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int j = 0; j < kDepth / 16; ++j)
        multiply(sum, described(tile + group * (kTileA / 2) + j * 32), described(tile + kTileA + j * 32), step || j);
      asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (thread < kCtas)
        asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(freed + 8 * s), "r"(thread)
                     : "memory");
    }
    float *out = c + (row + group * 64 + thread / 32 * 16 + thread % 32 / 4) * n + column + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i) {
      *reinterpret_cast<float2 *>(out + i * 8) = {sum[4 * i], sum[4 * i + 1]};
      *reinterpret_cast<float2 *>(out + 8 * n + i * 8) = {sum[4 * i + 2], sum[4 * i + 3]};
    }
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#define KERNEL(ctas)                                                                                               \
  extern "C" __global__ __launch_bounds__(384, 1) void multicast_##ctas(                                           \
      const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float *c, int n, int k) {      \
    products<ctas>(&a, &b, c, n, k);                                                                               \
  }
KERNEL(1)
KERNEL(2)
KERNEL(4)
