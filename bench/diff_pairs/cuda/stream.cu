// Kernels that move memory: the variants change how, or what else is done on the way.
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef WIDTH
#define WIDTH 1
#endif

// Grid-stride sum of two arrays.
extern "C" __global__ void scale_add(const float *x, const float *y, float *out, int n) {
  const int step = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    const float left = x[i];
    const float right = y[i];
    out[i] = 2.5f * left + right;
  }
}

// Copies with a stride between neighbouring threads.
extern "C" __global__ void copy_strided(const float *in, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i * STRIDE] = in[i * STRIDE] + 1.0f;
}

// The same elements in one, two or four words per load.
extern "C" __global__ void scale_wide(const float *in, float *out, int n) {
  const int step = gridDim.x * blockDim.x;
#if WIDTH == 4
  const float4 *from = reinterpret_cast<const float4 *>(in);
  float4 *to = reinterpret_cast<float4 *>(out);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += step) {
    float4 v = from[i];
    v.x *= 3.0f, v.y *= 3.0f, v.z *= 3.0f, v.w *= 3.0f;
    to[i] = v;
  }
#else
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) out[i] = 3.0f * in[i];
#endif
}
