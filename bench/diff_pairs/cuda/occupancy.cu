// One dependent load after the other: only more warps hide the latency. Block 128.
#ifndef SHARED_WORDS
#define SHARED_WORDS 4096
#endif

extern "C" __global__ void chase(const int *next, int *out, int steps) {
  __shared__ int scratch[SHARED_WORDS];
  const int t = threadIdx.x;
  scratch[t] = t;
  __syncthreads();
  int at = blockIdx.x * blockDim.x + scratch[t ^ 1];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) at = next[at + step * 32];
  out[blockIdx.x * blockDim.x + t] = at + scratch[(t * 7) % SHARED_WORDS];
}
