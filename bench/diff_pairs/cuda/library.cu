// A library of twenty kernels: maps, sums and gathers made by macros.
#ifndef CHANGED_STRIDE
#define CHANGED_STRIDE 1
#endif
#ifndef RENAMED
#define RENAMED gather_d
#endif
#ifndef REMOVED
#define REMOVED 0
#endif
#ifndef ADDED
#define ADDED 0
#endif
#define MAP(name, expression)                                                     \
  extern "C" __global__ void name(const float *in, float *out, int n) {           \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;                          \
    if (i < n) {                                                                  \
      const float x = in[i];                                                      \
      out[i] = expression;                                                        \
    }                                                                             \
  }
#define SUM(name, expression, step)                                               \
  extern "C" __global__ void name(const float *in, float *out, int n) {           \
    float sum = 0.0f;                                                             \
    for (int i = threadIdx.x; i < n; i += blockDim.x) {                           \
      const float x = in[(blockIdx.x * n + i) * step];                            \
      sum += expression;                                                          \
    }                                                                             \
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;                             \
  }
#define GATHER(name, expression)                                                  \
  extern "C" __global__ void name(const int *index, const float *in, float *out, int n) { \
    const int i = blockIdx.x * blockDim.x + threadIdx.x;                          \
    if (i < n) {                                                                  \
      const float x = in[index[i]];                                               \
      out[i] = expression;                                                        \
    }                                                                             \
  }
MAP(map_a, x + 1.0f)
MAP(map_b, x * x)
MAP(map_c, x * x * x - x)
MAP(map_d, fabsf(x) + 0.5f)
MAP(map_e, fmaxf(x, 0.0f))
MAP(map_f, x > 0.5f ? x : 0.25f * x)
MAP(map_g, sqrtf(x))
MAP(map_h, __expf(x))
SUM(sum_a, x, 1)
SUM(sum_b, x * x, CHANGED_STRIDE)
SUM(sum_c, fabsf(x), 1)
SUM(sum_d, x * 0.5f + 1.0f, 1)
SUM(sum_e, x > 0.0f ? 1.0f : 0.0f, 1)
SUM(sum_f, __expf(x), 1)
GATHER(gather_a, x)
GATHER(gather_b, x * 2.0f)
GATHER(gather_c, x * x)
GATHER(RENAMED, x * x - 3.0f * x + 1.0f)
GATHER(gather_e, fminf(x, 1.0f))
#if !REMOVED
MAP(map_removed, sinf(x) + cosf(x))
#endif
#if ADDED
extern "C" __global__ void added_scan(const float *in, float *out, int n) {
  __shared__ float partial[256];
  partial[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  for (int span = 1; span < 256; span *= 2) {
    __syncthreads();
    const float left = threadIdx.x >= span ? partial[threadIdx.x - span] : 0.0f;
    __syncthreads();
    partial[threadIdx.x] += left;
  }
  out[blockIdx.x * 256 + threadIdx.x] = partial[threadIdx.x];
}
#endif
