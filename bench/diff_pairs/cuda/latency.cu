// Rows read one after the other by few warps: the next row asked for early, or when it is needed.
#ifndef PREFETCH
#define PREFETCH 0
#endif
#ifndef AT_ONCE
#define AT_ONCE 1
#endif

extern "C" __global__ void decay(const float *in, float *out, int rows, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float state = 0.0f;
#if PREFETCH
  float next = in[i];
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    const float x = next;
    if (row + 1 < rows) next = in[(row + 1) * width + i];
#else
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    const float x = in[row * width + i];
#endif
#pragma unroll
    for (int step = 0; step < 64; ++step) state = state * x + 0.5f;
  }
  out[i] = state;
}

// Independent rows: AT_ONCE loads in flight per thread.
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) PRAGMA(unroll count)
extern "C" __global__ void column_sum(const float *in, float *out, int rows, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0.0f;
  UNROLL_BY(AT_ONCE)
  for (int row = 0; row < rows; ++row) sum += in[row * width + i];
  out[i] = sum;
}
