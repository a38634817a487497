// The sixteen kernels of the cross-GPU report, written anew from its description.
//
// Each is small and classical on purpose: one resource at a time (memory, FP32 pipe, shared memory,
// atomics, divergence).  1-D kernels run with 256 threads a block; the block shape that a 2-D kernel
// expects stands in its comment.  All arrays are dense and row-major.

constexpr int kStride = 8;          // strided_copy_8
constexpr int kTile = 32;           // transposes, tiled matmul, bank conflict
constexpr int kBins = 256;          // histogram
constexpr int kDivergentSteps = 128;

static __device__ __forceinline__ int global_x() { return blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ __forceinline__ int global_y() { return blockIdx.y * blockDim.y + threadIdx.y; }

// Direct 2-D convolution over the valid region, filter in global memory.
template <int K>
static __device__ __forceinline__ void convolve(const float *__restrict__ in,
                                                const float *__restrict__ filter,
                                                float *__restrict__ out, int height, int width) {
  const int x = global_x();
  const int y = global_y();
  if (x >= width - K + 1 || y >= height - K + 1) return;
  float sum = 0.0f;
#pragma unroll
  for (int dy = 0; dy < K; ++dy)
#pragma unroll
    for (int dx = 0; dx < K; ++dx)
      sum += in[(y + dy) * width + x + dx] * filter[dy * K + dx];
  out[y * width + x] = sum;
}

// Tree reduction of one value per thread in shared memory; the result is partial[0].
static __device__ __forceinline__ void reduce_block(float *partial, float value) {
  const int t = threadIdx.x;
  partial[t] = value;
  __syncthreads();
  for (unsigned int span = blockDim.x / 2; span > 0; span >>= 1) {
    if (t < span) partial[t] += partial[t + span];
    __syncthreads();
  }
}

// ---- memory-bound -------------------------------------------------------------------------------

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
  const int i = global_x();
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void saxpy(float alpha, const float *x, const float *y, float *out, int n) {
  const int i = global_x();
  if (i < n) out[i] = alpha * x[i] + y[i];
}

// Every eighth element: each 32-byte sector moved serves a single thread.
extern "C" __global__ void strided_copy_8(const float *in, float *out, int n) {
  const int i = global_x() * kStride;
  if (i < n) out[i] = in[i];
}

// Block 16 x 16.  Reads along rows, writes down columns: uncoalesced stores.
extern "C" __global__ void naive_transpose(const float *in, float *out, int rows, int cols) {
  const int x = global_x();
  const int y = global_y();
  if (x < cols && y < rows) out[x * rows + y] = in[y * cols + x];
}

// Block 32 x 32.  One padding column keeps the column read free of bank conflicts.
extern "C" __global__ void shared_transpose(const float *in, float *out, int rows, int cols) {
  __shared__ float tile[kTile][kTile + 1];
  int x = blockIdx.x * kTile + threadIdx.x;
  int y = blockIdx.y * kTile + threadIdx.y;
  if (x < cols && y < rows) tile[threadIdx.y][threadIdx.x] = in[y * cols + x];
  __syncthreads();
  x = blockIdx.y * kTile + threadIdx.x;
  y = blockIdx.x * kTile + threadIdx.y;
  if (x < rows && y < cols) out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

// Gather: the load's address comes from another load.
extern "C" __global__ void random_access(const float *in, const int *index, float *out, int n) {
  const int i = global_x();
  if (i < n) out[i] = in[index[i]];
}

// ---- compute-bound ------------------------------------------------------------------------------

// Block 16 x 16.  One output element per thread, operands straight from global memory.
extern "C" __global__ void matmul_naive(const float *a, const float *b, float *c, int n) {
  const int row = global_y();
  const int col = global_x();
  if (row >= n || col >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
  c[row * n + col] = sum;
}

// Block 32 x 32.  Both operands go through 32 x 32 tiles in shared memory.
extern "C" __global__ void matmul_tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const int tx = threadIdx.x;
  const int ty = threadIdx.y;
  const int row = blockIdx.y * kTile + ty;
  const int col = blockIdx.x * kTile + tx;
  float sum = 0.0f;
  for (int k0 = 0; k0 < n; k0 += kTile) {
    const int k_a = k0 + tx;
    const int k_b = k0 + ty;
    tile_a[ty][tx] = row < n && k_a < n ? a[row * n + k_a] : 0.0f;
    tile_b[ty][tx] = k_b < n && col < n ? b[k_b * n + col] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += tile_a[ty][k] * tile_b[k][tx];
    __syncthreads();
  }
  if (row < n && col < n) c[row * n + col] = sum;
}

// Block 16 x 16, as is the next.
extern "C" __global__ void conv2d_3x3(const float *in, const float *filter, float *out, int height,
                                      int width) {
  convolve<3>(in, filter, out, height, width);
}

extern "C" __global__ void conv2d_7x7(const float *in, const float *filter, float *out, int height,
                                      int width) {
  convolve<7>(in, filter, out, height, width);
}

// ---- reductions (dynamic shared memory: one float per thread) ------------------------------------

// Two elements per thread, one partial sum per block.
extern "C" __global__ void reduce_sum(const float *in, float *out, int n) {
  extern __shared__ float partial[];
  const int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
  const int j = i + blockDim.x;
  float sum = 0.0f;
  if (i < n) sum += in[i];
  if (j < n) sum += in[j];
  reduce_block(partial, sum);
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

extern "C" __global__ void dot_product(const float *a, const float *b, float *out, int n) {
  extern __shared__ float partial[];
  const int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
  const int j = i + blockDim.x;
  float sum = 0.0f;
  if (i < n) sum += a[i] * b[i];
  if (j < n) sum += a[j] * b[j];
  reduce_block(partial, sum);
  if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

// ---- atomics ------------------------------------------------------------------------------------

// 256 bins, counted per block in (dynamic) shared memory and then added to the global counts.
extern "C" __global__ void histogram(const unsigned int *data, int n, unsigned int *bins) {
  extern __shared__ unsigned int counts[];
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x) counts[bin] = 0;
  __syncthreads();
  for (int i = global_x(); i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&counts[data[i] % kBins], 1u);
  __syncthreads();
  for (int bin = threadIdx.x; bin < kBins; bin += blockDim.x)
    atomicAdd(&bins[bin], counts[bin]);
}

// Every thread adds to the same counter.
extern "C" __global__ void atomic_hotspot(unsigned int *counter, int iterations) {
  for (int i = 0; i < iterations; ++i) atomicAdd(counter, 1u);
}

// ---- special cases ------------------------------------------------------------------------------

// Even lanes take the short path, odd lanes the long one.
extern "C" __global__ void vector_add_divergent(const float *a, const float *b, float *c, int n) {
  const int i = global_x();
  if (i >= n) return;
  if (i % 2 == 0) {
    c[i] = a[i] + b[i];
  } else {
    float extra = 0.0f;
#pragma unroll 16
    for (int step = 0; step < kDivergentSteps; ++step) extra += step * 0.001f;
    c[i] = a[i] + b[i] + extra;
  }
}

// Block 32 x 32.  The transposed read hits one bank with all 32 lanes: no padding.
extern "C" __global__ void shared_bank_conflict(const float *in, float *out, int n) {
  __shared__ float tile[kTile][kTile];
  const int x = blockIdx.x * kTile + threadIdx.x;
  const int y = blockIdx.y * kTile + threadIdx.y;
  if (x < n && y < n) tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  __syncthreads();
  if (x < n && y < n) out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}
