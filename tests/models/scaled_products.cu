// Batches of NVFP4 products as a CTA makes them for a tile of 128 x 256 x 256: four of 64 deep, before them the copies
// of their scales into tensor memory; each batch of EIGHT tiles is followed by a commit that the issuing thread waits for.
#include <cstdint>

constexpr int kTiles = 8;
constexpr uint32_t kDescriptor = 1u << 7 | 1u << 10 | 256u / 8 << 17 | 128u / 16 << 24;

__device__ uint32_t at(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ uint64_t descriptor(uint32_t address, uint64_t rows, uint64_t swizzle) {
  return uint64_t(address >> 4 & 0x3FFF) | uint64_t(1) << 16 | rows << 32 | uint64_t(1) << 46 | swizzle << 61;
}

extern "C" __global__ void scaled_products(int batches) {
  __shared__ alignas(1024) unsigned char a[128 * 128], b[256 * 128], scales[512];
  __shared__ uint64_t barrier;
  __shared__ uint32_t columns;
  if (threadIdx.x < 32) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(at(&columns)));
  }
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&barrier)));
  __syncthreads();
  if (threadIdx.x < 32) {
    uint32_t leader;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xFFFFFFFF; selp.u32 %0, 1, 0, p; }" : "=r"(leader));
    const uint32_t d = columns;
    if (leader) {
      for (int batch = 0; batch < batches; ++batch) {
#pragma unroll 1
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int i = 0; i < 12; ++i) {
            asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(d + 256 + 4 * i), "l"(descriptor(at(scales), 8, 0)));
          }
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            asm volatile("{ .reg .pred p; setp.ne.u32 p, 1, 0;\n"
                         "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(d),
                         "l"(descriptor(at(a) + 32 * k, 64, 2)), "l"(descriptor(at(b) + 32 * k, 64, 2)), "r"(kDescriptor),
                         "r"(d + 256 + 4 * k), "r"(d + 272 + 8 * k));
          }
        }
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%0];" ::"l"(uint64_t(at(&barrier))));
        uint32_t done = 0;
        while (!done) {
          asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                       : "=r"(done) : "r"(at(&barrier)), "r"(batch & 1) : "memory");
        }
      }
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" ::"r"(columns));
}
