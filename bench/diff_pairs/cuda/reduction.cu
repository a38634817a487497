// Sums of blocks of 256: through shared memory, by shuffles; or one atomic addition per thread.
#ifndef MODE
#define MODE 0
#endif
#ifndef DIVERGENT
#define DIVERGENT 0
#endif
#ifndef LAST_BARRIER
#define LAST_BARRIER 0
#endif

extern "C" __global__ void block_sum(const float *in, float *total, int n) {
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += in[i];
#if LAST_BARRIER
  __syncthreads();
#endif
#if MODE == 0
  __shared__ float partial[8];
#pragma unroll
  for (int span = 16; span > 0; span /= 2) sum += __shfl_down_sync(0xffffffffu, sum, span);
  if (t % 32 == 0) partial[t / 32] = sum;
  __syncthreads();
  if (t == 0) {
    float all = 0.0f;
#pragma unroll
    for (int warp = 0; warp < 8; ++warp) all += partial[warp];
    atomicAdd(total, all);
  }
#else
  atomicAdd(total, sum);
#endif
}

// Two kinds of work: by warp, or by lane of each warp.
extern "C" __global__ void two_kinds(const float *in, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float x = in[i];
  if (DIVERGENT ? threadIdx.x & 1 : threadIdx.x / 32 & 1) {
#pragma unroll 8
    for (int step = 0; step < 128; ++step) x = x * 1.0001f + 0.25f;
  } else {
#pragma unroll 8
    for (int step = 0; step < 128; ++step) x = x * x - 0.75f;
  }
  out[i] = x;
}
