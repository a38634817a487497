// Copies to shared memory by cp.async, STAGES batches in flight, each of WIDTH bytes a thread; nothing is computed.
#include <cstdint>
__device__ void copy(uint32_t to, const char *from) {
#if WIDTH == 16
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(WIDTH));
#endif
  asm volatile("cp.async.commit_group;");
}
extern "C" __global__ void ldgsts(const char *in, int batches, long long stride) {
  extern __shared__ char tile[];
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(tile)) + threadIdx.x * WIDTH;
  const uint32_t size = blockDim.x * WIDTH;
  const char *from = in + blockIdx.x * static_cast<long long>(size) + threadIdx.x * WIDTH;
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) { copy(to + s * size, from); from += stride; }
  int stage = STAGES - 1;
  for (int i = STAGES - 1; i < batches; ++i) {
    copy(to + stage * size, from);
    from += stride;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1));
  }
  asm volatile("cp.async.wait_all;");
}
