// Kernels whose addresses, trips or branches hang on scalars: what does the report say where these are not given?
extern "C" __global__ void transpose(float* out, const float* in, int n) {
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  out[x * n + y] = in[y * n + x];
}
extern "C" __global__ void column_sums(float* out, const float* a, int rows, int pitch) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int r = 0; r < rows; r++) s += a[r * pitch + c];
  out[c] = s;
}
extern "C" __global__ void table_sums(float* out, const float* a, const int* lengths) {
  float s = 0;
  for (int k = 0; k < lengths[blockIdx.x]; k++) s += a[k * blockDim.x + threadIdx.x];
  out[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void by_mode(float* out, const float* in, int mode) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float x = in[i];
  if (mode == 1)
    for (int k = 0; k < 64; k++) x = x * x + 0.5f;
  out[i] = x;
}
extern "C" __global__ void conflicts(float* out, const float* in, int pitch) {
  __shared__ float s[2048];
  s[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  float v = 0;
#pragma unroll
  for (int k = 0; k < 8; k++) v += s[(threadIdx.x * pitch + k) & 2047];
  out[blockIdx.x * 256 + threadIdx.x] = v;
}
