// Kernels whose tiles go through registers, and the same with cp.async into a second buffer, one tile ahead.
__device__ __forceinline__ void copy(void* to, const void* from) {
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(at), "l"(from));
}
__device__ __forceinline__ void copy_word(void* to, const void* from) {
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at), "l"(from));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int n> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(n)); }

// A product of matrices, 32 x 32 tiles, four rows of a column for each thread.
extern "C" __global__ void faulty_product(const float* a, const float* b, float* c, int n) {
    __shared__ float s[32][32], t[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, col = blockIdx.x * 32 + x;
    float sum[4] = {};
#pragma unroll 1
    for (int k = 0; k < n; k += 32) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            s[y + 8 * i][x] = a[(row + y + 8 * i) * n + k + x];
            t[y + 8 * i][x] = b[(k + y + 8 * i) * n + col];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 32; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[i] += s[y + 8 * i][j] * t[j][x];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) c[(row + y + 8 * i) * n + col] = sum[i];
}
extern "C" __global__ void mended_product(const float* a, const float* b, float* c, int n) {
    __shared__ float s[2][32][32], t[2][32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32, col = blockIdx.x * 32 + x;
    float sum[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        copy_word(&s[0][y + 8 * i][x], &a[(row + y + 8 * i) * n + x]);
        copy_word(&t[0][y + 8 * i][x], &b[(y + 8 * i) * n + col]);
    }
    commit();
#pragma unroll 1
    for (int k = 0, now = 0; k < n; k += 32, now ^= 1) {
        if (k + 32 < n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                copy_word(&s[now ^ 1][y + 8 * i][x], &a[(row + y + 8 * i) * n + k + 32 + x]);
                copy_word(&t[now ^ 1][y + 8 * i][x], &b[(k + 32 + y + 8 * i) * n + col]);
            }
        }
        commit();
        wait<1>();
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 32; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[i] += s[now][y + 8 * i][j] * t[now][j][x];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) c[(row + y + 8 * i) * n + col] = sum[i];
}

// Distances of each thread's point to points that come tile by tile.
extern "C" __global__ void faulty_nearest(const float4* points, const float4* queries, float* out, int n) {
    __shared__ float4 tile[256];
    float4 q = queries[blockIdx.x * 256 + threadIdx.x];
    float best = 1e30f;
#pragma unroll 1
    for (int k = 0; k < n; k += 256) {
        tile[threadIdx.x] = points[k + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 256; ++j) {
            float dx = tile[j].x - q.x, dy = tile[j].y - q.y, dz = tile[j].z - q.z;
            best = fminf(best, dx * dx + dy * dy + dz * dz);
        }
        __syncthreads();
    }
    out[blockIdx.x * 256 + threadIdx.x] = best;
}
extern "C" __global__ void mended_nearest(const float4* points, const float4* queries, float* out, int n) {
    __shared__ float4 tile[2][256];
    float4 q = queries[blockIdx.x * 256 + threadIdx.x];
    float best = 1e30f;
    copy(&tile[0][threadIdx.x], &points[threadIdx.x]);
    commit();
#pragma unroll 1
    for (int k = 0, now = 0; k < n; k += 256, now ^= 1) {
        if (k + 256 < n) copy(&tile[now ^ 1][threadIdx.x], &points[k + 256 + threadIdx.x]);
        commit();
        wait<1>();
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 256; ++j) {
            float dx = tile[now][j].x - q.x, dy = tile[now][j].y - q.y, dz = tile[now][j].z - q.z;
            best = fminf(best, dx * dx + dy * dy + dz * dz);
        }
        __syncthreads();
    }
    out[blockIdx.x * 256 + threadIdx.x] = best;
}

// A vector times a matrix whose rows a CTA reads in chunks; the vector is staged.
extern "C" __global__ void faulty_filter(const float4* x, const float* w, float* y, int n) {
    __shared__ float4 tile[128];
    float s = 0;
    float v[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) v[j] = w[j];
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        tile[threadIdx.x] = x[(blockIdx.x * n + k) * 128 + threadIdx.x];
        __syncthreads();
        const float* f = reinterpret_cast<const float*>(tile);
#pragma unroll
        for (int j = 0; j < 16; ++j) s += f[(threadIdx.x + j) & 511] * v[j];
        __syncthreads();
    }
    y[blockIdx.x * 128 + threadIdx.x] = s;
}
extern "C" __global__ void mended_filter(const float4* x, const float* w, float* y, int n) {
    __shared__ float4 tile[2][128];
    float s = 0;
    copy(&tile[0][threadIdx.x], &x[blockIdx.x * n * 128 + threadIdx.x]);
    commit();
    float v[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) v[j] = w[j];
#pragma unroll 1
    for (int k = 0, now = 0; k < n; ++k, now ^= 1) {
        if (k + 1 < n) copy(&tile[now ^ 1][threadIdx.x], &x[(blockIdx.x * n + k + 1) * 128 + threadIdx.x]);
        commit();
        wait<1>();
        __syncthreads();
        const float* f = reinterpret_cast<const float*>(tile[now]);
#pragma unroll
        for (int j = 0; j < 16; ++j) s += f[(threadIdx.x + j) & 511] * v[j];
        __syncthreads();
    }
    y[blockIdx.x * 128 + threadIdx.x] = s;
}
