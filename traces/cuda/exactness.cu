// Kernels whose execution counts and bytes can be written down from the algorithm alone: the proof
// corpus of `tests/execution/closed_forms.py`, together with `report16.cu`.
//
// The block shape that a kernel expects stands in its comment; any other 1-D kernel takes any block.
// All arrays are dense and row-major.

constexpr int kTile = 32;       // transpose
constexpr int kTileRows = 8;    // transpose: rows of threads
constexpr int kMatmulTile = 16;
constexpr int kConvTile = 16;   // convolution with a halo
constexpr int kRadius = 2;
constexpr int kHaloTile = kConvTile + 2 * kRadius;
constexpr int kTaps = 2 * kRadius + 1;
constexpr unsigned int kAllLanes = 0xffffffffu;

static __device__ __forceinline__ int global_x() { return blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ int global_y() { return blockIdx.y * blockDim.y + threadIdx.y; }

// ---- loops over a grid ----------------------------------------------------------------------------

extern "C" __global__ void vector_add_grid_stride(const float *a, const float *b, float *c, int n) {
  for (int i = global_x(); i < n; i += gridDim.x * blockDim.x) c[i] = a[i] + b[i];
}

// The same loop with a 64-bit count.
extern "C" __global__ void saxpy_grid_stride(float alpha, const float *x, const float *y, float *out,
                                             long long n) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = alpha * x[i] + y[i];
}

// One thread a row, all indices 64-bit.
extern "C" __global__ void row_sums_64(const float *in, float *out, long long rows, long long cols) {
  const long long row = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (long long col = 0; col < cols; ++col) sum += in[row * cols + col];
  out[row] = sum;
}

// Row i has i + 1 elements: lanes of a warp leave the loop one after the other.
extern "C" __global__ void triangular_row_sums(const float *in, float *out, int n) {
  const int row = global_x();
  if (row >= n) return;
  float sum = 0.0f;
#pragma unroll 1
  for (int col = 0; col <= row; ++col) sum += in[row * n + col];
  out[row] = sum;
}

// Rows of a sparse matrix: trip counts come from memory.
extern "C" __global__ void csr_row_sums(const int *first, const float *values, float *out, int rows) {
  const int row = global_x();
  if (row >= rows) return;
  float sum = 0.0f;
#pragma unroll 1
  for (int i = first[row]; i < first[row + 1]; ++i) sum += values[i];
  out[row] = sum;
}

// ---- matrix products ------------------------------------------------------------------------------

// Block 16 x 16.  C (m x n) = A (m x k) B (k x n).
extern "C" __global__ void matmul_naive_rect(const float *a, const float *b, float *c, int m, int n,
                                             int k) {
  const int row = global_y();
  const int col = global_x();
  if (row >= m || col >= n) return;
  float sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}

// Block 16 x 16.
extern "C" __global__ void matmul_tiled_rect(const float *a, const float *b, float *c, int m, int n,
                                             int k) {
  __shared__ float tile_a[kMatmulTile][kMatmulTile];
  __shared__ float tile_b[kMatmulTile][kMatmulTile];
  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const int row = blockIdx.y * kMatmulTile + ty;
  const int col = blockIdx.x * kMatmulTile + tx;
  float sum = 0.0f;
  for (int k0 = 0; k0 < k; k0 += kMatmulTile) {
    const int k_a = k0 + tx;
    const int k_b = k0 + ty;
    tile_a[ty][tx] = row < m && k_a < k ? a[row * k + k_a] : 0.0f;
    tile_b[ty][tx] = k_b < k && col < n ? b[k_b * n + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMatmulTile; ++i) sum += tile_a[ty][i] * tile_b[i][tx];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}

// ---- reductions -----------------------------------------------------------------------------------

// One sum per block: a loop over the grid, a tree in (dynamic) shared memory down to 64 values, then
// shuffles inside the first warp.  The block is a power of two from 64 on; one float per thread.
extern "C" __global__ void block_sum(const float *in, float *out, int n) {
  extern __shared__ float partial[];
  const int t = threadIdx.x;
  float sum = 0.0f;
#pragma unroll 1
  for (int i = global_x(); i < n; i += gridDim.x * blockDim.x) sum += in[i];
  partial[t] = sum;
  __syncthreads();
#pragma unroll 1
  for (int span = blockDim.x / 2; span >= 64; span >>= 1) {
    if (t < span) partial[t] += partial[t + span];
    __syncthreads();
  }
  if (t >= 32) return;
  sum = partial[t] + partial[t + 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1)
    sum += __shfl_down_sync(kAllLanes, sum, distance);
  if (t == 0) out[blockIdx.x] = sum;
}

// ---- permutations ---------------------------------------------------------------------------------

// Block 32 x 8, four rows a thread.  No padding: the column read hits one bank with all 32 lanes
// (`shared_transpose` of report16.cu has the padding).
extern "C" __global__ void transpose_tiled(const float *in, float *out, int rows, int cols) {
  __shared__ float tile[kTile][kTile];
  int x = blockIdx.x * kTile + threadIdx.x;
  int y = blockIdx.y * kTile + threadIdx.y;
#pragma unroll
  for (int j = 0; j < kTile; j += kTileRows)
    if (x < cols && y + j < rows) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * cols + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
#pragma unroll
  for (int j = 0; j < kTile; j += kTileRows)
    if (x < rows && y + j < cols) out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

// Images to channels first: indices by division, one thread an element.
extern "C" __global__ void channels_first(const float *in, float *out, int images, int height, int width,
                                          int channels) {
  const int i = global_x();
  if (i >= images * height * width * channels) return;
  const int channel = i % channels;
  const int x = i / channels % width;
  const int y = i / channels / width % height;
  const int image = i / channels / width / height;
  out[((image * channels + channel) * height + y) * width + x] = in[i];
}

// ---- neighbourhoods -------------------------------------------------------------------------------

// Block 16 x 16.  5 x 5, zeros outside; the tile and its halo go through shared memory.
extern "C" __global__ void conv2d_halo(const float *in, const float *filter, float *out, int height,
                                       int width) {
  __shared__ float tile[kHaloTile][kHaloTile];
  const int left = blockIdx.x * kConvTile - kRadius;
  const int top = blockIdx.y * kConvTile - kRadius;
#pragma unroll 1
  for (int i = threadIdx.y * kConvTile + threadIdx.x; i < kHaloTile * kHaloTile;
       i += kConvTile * kConvTile) {
    const int x = left + i % kHaloTile;
    const int y = top + i / kHaloTile;
    const bool inside = x >= 0 && x < width && y >= 0 && y < height;
    tile[i / kHaloTile][i % kHaloTile] = inside ? in[y * width + x] : 0.0f;
  }
  __syncthreads();
  const int x = global_x();
  const int y = global_y();
  if (x >= width || y >= height) return;
  float sum = 0.0f;
#pragma unroll
  for (int dy = 0; dy < kTaps; ++dy)
#pragma unroll
    for (int dx = 0; dx < kTaps; ++dx)
      sum += tile[threadIdx.y + dy][threadIdx.x + dx] * filter[dy * kTaps + dx];
  out[y * width + x] = sum;
}

// 3-D launch, any block.  Inner points add up their six neighbours; the others are not written.
extern "C" __global__ void stencil_3d(const float *in, float *out, int depth, int height, int width) {
  const int x = global_x();
  const int y = global_y();
  const int z = blockIdx.z * blockDim.z + threadIdx.z;
  if (x < 1 || y < 1 || z < 1 || x >= width - 1 || y >= height - 1 || z >= depth - 1) return;
  const int i = (z * height + y) * width + x;
  const int plane = height * width;
  out[i] = in[i - 1] + in[i + 1] + in[i - width] + in[i + width] + in[i - plane] + in[i + plane];
}
