// CTAs that are done take others which have not begun from the launch (cluster launch control).
#include <cstdint>

__device__ uint32_t at(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

extern "C" __global__ void scaled(float *data, float factor) {
  __shared__ alignas(16) uint4 answer;
  __shared__ uint64_t told;
  uint32_t parity = 0, is_taken = 1, cta = blockIdx.x;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&told)));
  while (is_taken) {
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                   ::"r"(at(&answer)), "r"(at(&told)) : "memory");
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(at(&told)) : "memory");
    }
    data[cta * blockDim.x + threadIdx.x] *= factor;
    for (uint32_t is_there = 0; !is_there;) {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(is_there) : "r"(at(&told)), "r"(parity) : "memory");
    }
    parity ^= 1;
    asm volatile("{ .reg .pred p; .reg .b128 r; ld.shared.b128 r, [%2];\n"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r; selp.u32 %0, 1, 0, p;\n"
                 "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, r; }"
                 : "=r"(is_taken), "+r"(cta) : "r"(at(&answer)) : "memory");
  }
}

extern "C" __global__ void plain(float *data, float factor) { data[blockIdx.x * blockDim.x + threadIdx.x] *= factor; }
