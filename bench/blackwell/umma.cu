// Batches of tcgen05.mma of one shape, each followed by a commit that the issuing thread waits for.
//
// KIND: f16 (BF16), f8f6f4 (E4M3), i8 (S8); M, N: the instruction's; FROM_TMEM: A lies in tensor memory; GROUP: CTAs
// of a pair; DEPTH: instructions of a batch.
#include <cstdint>
#ifndef BATCHES
#define BATCHES 1000
#endif
#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define PAIR ".cta_group::" STRING(GROUP)

constexpr uint32_t kDescriptor = uint32_t(FORMAT) | uint32_t(N / 8) << 17 | uint32_t(M / 16) << 24;

__device__ uint32_t shared_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ uint64_t tile_descriptor(uint32_t address) {
  return uint64_t(address >> 4 & 0x3FFF) | uint64_t(1) << 16 | uint64_t(64) << 32 | uint64_t(1) << 46 | uint64_t(2) << 61;
}

__device__ bool is_done(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

extern "C" __global__ void
#if GROUP == 2
__cluster_dims__(2, 1, 1)
#endif
umma(int batches) {
  __shared__ alignas(1024) unsigned char a[M / GROUP * 128], b[N / GROUP * 128];
  __shared__ uint64_t barrier;
  __shared__ uint32_t columns;
  const uint32_t arrived = shared_address(&barrier);
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc" PAIR ".sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(shared_address(&columns)));
  }
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(arrived));
  __syncthreads();
  uint32_t rank = 0;
#if GROUP == 2
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  if (threadIdx.x < 32 && rank == 0) {
    uint32_t leader;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(leader));
    const uint32_t d = columns;
    const uint64_t at = tile_descriptor(shared_address(a)), bt = tile_descriptor(shared_address(b));
    if (leader) {
      for (int batch = 0; batch < batches; ++batch) {
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
#if FROM_TMEM
          asm volatile("{ .reg .pred p; setp.ne.u32 p, 1, 0; tcgen05.mma" PAIR ".kind::" KIND " [%0], [%1], %2, %3, p; }" ::"r"(d),
                       "r"(d + 256), "l"(bt), "r"(kDescriptor));
#else
          asm volatile("{ .reg .pred p; setp.ne.u32 p, 1, 0; tcgen05.mma" PAIR ".kind::" KIND " [%0], %1, %2, %3, p; }" ::"r"(d),
                       "l"(at), "l"(bt), "r"(kDescriptor));
#endif
        }
        asm volatile("tcgen05.commit" PAIR ".mbarrier::arrive::one.b64 [%0];" ::"l"(uint64_t(arrived)));
        while (!is_done(arrived, batch & 1)) {
        }
      }
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.dealloc" PAIR ".sync.aligned.b32 %0, 512;" ::"r"(columns));
  }
}
