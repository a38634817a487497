// A stream with something that is rarely taken: a check, a message, another path.
#include <cassert>
#include <cstdio>
#ifndef EXTRA
#define EXTRA 0
#endif
constexpr int kEach = 4;

// Four elements per thread, all asked for before the first is used: enough in flight to saturate DRAM.
extern "C" __global__ void normalize(const float *in, float *out, int n, int mode) {
  const int first = blockIdx.x * blockDim.x * kEach + threadIdx.x;
  float values[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) values[j] = in[min(first + j * static_cast<int>(blockDim.x), n - 1)];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int i = first + j * blockDim.x;
    float x = values[j];
    if (i >= n) return;
#if EXTRA == 1
    assert(x == x);
#elif EXTRA == 2
    if (x != x) printf("not a number at %d\n", i);
#elif EXTRA == 3
    if (mode == 7) {
      for (int round = 0; round < 40; ++round) x = x * 0.99f + 0.01f;
    }
#elif EXTRA == 4
    if (!(fabsf(x) < 1.0e30f)) x = 0.0f;
#endif
    out[i] = x * 0.125f;
  }
}
