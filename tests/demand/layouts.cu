// Records of three floats, side by side or apart; a stencil over a cube whose first plane is left as it is; and
// words that are counted where data say.
// Dumped as layouts_80.txt: cuobjdump -sass of nvcc -O3 -cubin -arch=sm_80 layouts.cu, without encodings.

extern "C" __global__ void records(const float *__restrict__ in, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[3 * i] * in[3 * i + 1] + in[3 * i + 2];
}

extern "C" __global__ void columns(const float *__restrict__ in, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] * in[i + n] + in[i + 2 * n];
}

extern "C" __global__ void stencil(const float *__restrict__ in, float *out, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
  const int i = (z * n + y) * n + x;
  out[i] = in[i] + in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n];
}

extern "C" __global__ void counts(const unsigned char *__restrict__ in, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&out[in[i]], 1);
}
