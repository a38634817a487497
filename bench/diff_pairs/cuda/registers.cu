// Forty-eight values that live through a loop: what a limit of registers does to them.
#ifndef VALUES
#define VALUES 48
#endif
#ifndef BOUNDS
#define BOUNDS
#endif

extern "C" __global__ void BOUNDS accumulate(const float *in, float *out, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum[VALUES];
#pragma unroll
  for (int j = 0; j < VALUES; ++j) sum[j] = in[i + j * 32];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const float x = in[step];
#pragma unroll
    for (int j = 0; j < VALUES; ++j) sum[j] = sum[j] * x + sum[(j + 7) % VALUES];
  }
  float total = 0.0f;
#pragma unroll
  for (int j = 0; j < VALUES; ++j) total += sum[j];
  out[i] = total;
}

// An array whose index is known at run time only, or after unrolling.
#ifndef DYNAMIC
#define DYNAMIC 0
#endif
extern "C" __global__ void permute(const int *order, const float *in, float *out, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float values[16];
#pragma unroll
  for (int j = 0; j < 16; ++j) values[j] = in[i * 16 + j];
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
#if DYNAMIC
      const int to = (j + order[step]) & 15;
      values[to] = values[j] * 0.5f + values[(to + 3) & 15];
#else
      const int to = (j + 5) & 15;
      values[to] = values[j] * 0.5f + values[(to + 3) & 15] + order[step];
#endif
    }
  }
  float total = 0.0f;
#pragma unroll
  for (int j = 0; j < 16; ++j) total += values[j];
  out[i] = total;
}
