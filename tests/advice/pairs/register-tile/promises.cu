// Products of matrices, one element a thread; then 2 x 2 elements a thread.

// Tiles of 16 x 16 in shared memory.
extern "C" __global__ void faulty_shared(const float* a, const float* b, float* c, int n) {
    __shared__ float s[16][16], t[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < n; k += 16) {
        s[y][x] = a[row * n + k + x];
        t[y][x] = b[(k + y) * n + col];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; ++j) sum += s[y][j] * t[j][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
extern "C" __global__ void mended_shared(const float* a, const float* b, float* c, int n) {
    __shared__ float s[32][16], t[16][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, col = blockIdx.x * 32 + x;
    float sum[2][2] = {};
#pragma unroll 1
    for (int k = 0; k < n; k += 16) {
        s[y][x] = a[row * n + k + x];
        s[y + 16][x] = a[(row + 16) * n + k + x];
        t[y][x] = b[(k + y) * n + col];
        t[y][x + 16] = b[(k + y) * n + col + 16];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; ++j)
#pragma unroll
            for (int u = 0; u < 2; ++u)
#pragma unroll
                for (int v = 0; v < 2; ++v) sum[u][v] += s[y + 16 * u][j] * t[j][x + 16 * v];
        __syncthreads();
    }
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
        for (int v = 0; v < 2; ++v) c[(row + 16 * u) * n + col + 16 * v] = sum[u][v];
}
// Straight from global memory.
extern "C" __global__ void faulty_global(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}
extern "C" __global__ void mended_global(const float* __restrict__ a, const float* __restrict__ b, float* c, int n) {
    int row = blockIdx.y * 32 + threadIdx.y, col = blockIdx.x * 32 + threadIdx.x;
    float sum[2][2] = {};
    for (int k = 0; k < n; ++k)
#pragma unroll
        for (int u = 0; u < 2; ++u)
#pragma unroll
            for (int v = 0; v < 2; ++v) sum[u][v] += a[(row + 16 * u) * n + k] * b[k * n + col + 16 * v];
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
        for (int v = 0; v < 2; ++v) c[(row + 16 * u) * n + col + 16 * v] = sum[u][v];
}
