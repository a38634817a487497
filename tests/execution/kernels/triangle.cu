// Each CTA copies one tile more than the one before it, as attention under a causal mask does: four tiles at a
// time, and what is left over one by one.
#include <cstdint>
#include <cuda.h>

constexpr int kStages = 2, kBytes = 64 * 64 * 4;

__device__ uint32_t at(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void wait(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  }
}

extern "C" __global__ void triangle(const __grid_constant__ CUtensorMap map, float *out) {
  extern __shared__ __align__(1024) float tiles[];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&full[s])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&empty[s])));
    }
  }
  __syncthreads();
  const int steps = blockIdx.x + 1;
  int stage = 0;
  uint32_t parity = 0;
  if (threadIdx.x == 0) {
#pragma unroll 4
    for (int k = 0; k < steps; ++k) {
      wait(at(&empty[stage]), parity ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&full[stage])), "n"(kBytes));
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                   ::"r"(at(tiles) + stage * kBytes), "l"(&map), "r"(k * 64), "r"(0), "r"(at(&full[stage])) : "memory");
      if (++stage == kStages) { stage = 0; parity ^= 1; }
    }
  } else if (threadIdx.x >= 32) {
    float sum = 0.0f;
    for (int k = 0; k < steps; ++k) {
      wait(at(&full[stage]), parity);
      for (int i = threadIdx.x - 32; i < kBytes / 4; i += 32) sum += tiles[stage * kBytes / 4 + i];
      __syncwarp();
      if (threadIdx.x == 32) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(&empty[stage])) : "memory");
      if (++stage == kStages) { stage = 0; parity ^= 1; }
    }
    out[blockIdx.x * 32 + threadIdx.x - 32] = sum;
  }
}
