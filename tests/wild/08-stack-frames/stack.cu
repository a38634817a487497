// nvcc -arch=sm_80 (sm_100) -maxrregcount 24 -cubin -Xptxas -v stack.cu && cuobjdump -sass stack.cubin
// (hex words and runs of blanks dropped). What ptxas -v says is in test_08_stack_frames.py.
#include <cstdio>
extern "C" __global__ void prints(float* x) {
  float v = x[threadIdx.x];
  if (v != v) printf("%d\n", threadIdx.x);
  x[threadIdx.x] = v * 2;
}
extern "C" __global__ void indexed(const int* idx, float* out, int n) {
  float a[16];
  for (int k = 0; k < 16; ++k) a[k] = k + threadIdx.x;
  float s = 0;
#pragma unroll 1
  for (int k = 0; k < n; ++k) { int j = idx[k] & 15; s += a[j]; a[(j + 7) & 15] = s; }
  out[threadIdx.x] = s;
}
extern "C" __global__ void spills(float* x, int n) {
  float a[24];
  for (int i = 0; i < 24; ++i) a[i] = x[i * 32 + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < n; ++k)
#pragma unroll
    for (int i = 0; i < 24; ++i) a[i] = a[i] * a[(i + 1) % 24] + a[(i + 7) % 24];
  for (int i = 0; i < 24; ++i) x[i * 32 + threadIdx.x] = a[i];
}
extern "C" __global__ void both(float* x, const int* idx, int n) {
  float t[32];
  for (int i = 0; i < 32; ++i) t[i] = x[i + threadIdx.x * 3];
  float a[16];
  for (int i = 0; i < 16; ++i) a[i] = x[i * 32 + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < n; ++k) {
    t[idx[k] & 31] += a[0];
#pragma unroll
    for (int i = 0; i < 16; ++i) a[i] = a[i] * a[(i + 1) % 16] + t[(idx[k] + i) & 31];
  }
  for (int i = 0; i < 16; ++i) x[i * 32 + threadIdx.x] = a[i];
}
