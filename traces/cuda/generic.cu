// Generic addresses: which memory a load meets is told by the address, not by the instruction.
//
// Part of the proof corpus of `tests/execution/closed_forms.py`. No header is included: line tables name
// nothing else than this file.

constexpr int kThreads = 128;
constexpr int kPart = 8;

// Not inlined, so that its loads are generic ones.
static __device__ __noinline__ float part_sum(const float *from, int stride) {
  float sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < kPart; i++) sum += from[i * stride];
  return sum;
}

// Three sums of 8 words by the same code: of global memory, of shared memory and of the thread's own stack.
extern "C" __global__ void three_memories(const float *in, float *out, int shift) {
  __shared__ float near[kThreads * kPart];
  float own[kPart];
  const int thread = threadIdx.x;
  const float *from = in + blockIdx.x * kThreads * kPart;
  for (int i = 0; i < kPart; i++) near[i * kThreads + thread] = static_cast<float>(i * shift);
  for (int i = 0; i < kPart; i++) own[(i + shift) & (kPart - 1)] = static_cast<float>(thread ^ i);
  __syncthreads();
  const float sum = part_sum(from + thread, kThreads) + part_sum(near + thread, kThreads) + part_sum(own, 1);
  out[blockIdx.x * kThreads + thread] = sum;
}

// Odd lanes read shared memory, even ones global memory, with one instruction.
extern "C" __global__ void mixed_lanes(const float *in, float *out) {
  __shared__ float near[kThreads];
  const int thread = threadIdx.x, place = blockIdx.x * kThreads + thread;
  near[thread] = static_cast<float>(thread);
  __syncthreads();
  const float *from = thread & 1 ? near + thread : in + place;
  out[place] = *static_cast<const volatile float *>(from);
}

#if __CUDA_ARCH__ >= 900
// Each CTA of a cluster adds up the words of all, which lie in the shared memory of each.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sums(const float *in, float *out) {
  __shared__ float near[kThreads];
  const int place = blockIdx.x * kThreads + threadIdx.x;
  near[threadIdx.x] = in[place];
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  float sum = 0.0f;
  for (unsigned int rank = 0; rank < 4; rank++) {
    const float *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(near + threadIdx.x), "r"(rank));
    sum += *static_cast<const volatile float *>(there);
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  out[place] = sum;
}
#endif
