// The same values in another type, or with another index.
#include <cuda_fp16.h>
#ifndef STORED
#define STORED float
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef LOAD
#define LOAD(address) (*(address))
#endif
#ifndef SECOND
#define SECOND 0
#endif
constexpr int kEach = 4;

// Four elements per thread, all asked for before the first is used: enough in flight to saturate DRAM.
extern "C" __global__ void soften(const STORED *in, STORED *out, const STORED *other, int n) {
  const INDEX first = static_cast<INDEX>(blockIdx.x) * blockDim.x * kEach + threadIdx.x;
  float x[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const INDEX i = first + j * blockDim.x;
    x[j] = i < n ? static_cast<float>(LOAD(in + i)) : 0.0f;
#if SECOND
    x[j] += i < n ? static_cast<float>(LOAD(other + i)) : 0.0f;
#endif
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const INDEX i = first + j * blockDim.x;
    if (i < n) out[i] = STORED(x[j] * 0.75f);
  }
}
