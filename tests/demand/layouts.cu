// Records of three floats, side by side or apart; a stencil over a cube whose first plane is left as it is, another
// over a plane in tiles with their rims; and words that are counted where data say.
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
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y,
            z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
  const int i = (z * n + y) * n + x;
  out[i] = in[i] + in[i - 1] + in[i + 1] + in[i - n] + in[i + n] + in[i - n * n] + in[i + n * n];
}

extern "C" __global__ void counts(const unsigned char *__restrict__ in, int *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&out[in[i]], 1);
}

extern "C" __global__ void tiled(const float *__restrict__ in, float *out, int n) {
  __shared__ float tile[18][34];
  const int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, i = y * n + x;
  tile[ty][tx] = in[i];
  if (tx == 1 && x > 0) tile[ty][0] = in[i - 1];
  if (tx == 32 && x < n - 1) tile[ty][33] = in[i + 1];
  if (ty == 1 && y > 0) tile[0][tx] = in[i - n];
  if (ty == 16 && y < n - 1) tile[17][tx] = in[i + n];
  __syncthreads();
  if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
  out[i] = tile[ty][tx] + tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx];
}
