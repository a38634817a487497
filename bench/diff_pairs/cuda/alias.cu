// Sums of a row that are kept in memory: whether the compiler may keep them in registers.
#ifndef QUALIFIER
#define QUALIFIER
#endif

extern "C" __global__ void weighted_rows(const float *QUALIFIER rows, const float *QUALIFIER weights,
                                         float *QUALIFIER out, int n, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = 0.0f;
  for (int k = 0; k < count; ++k) out[i] += rows[k * n + i] * weights[0] + weights[1];
}

extern "C" __global__ void double_all(const float *QUALIFIER in, float *QUALIFIER out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * 2.0f;
}
