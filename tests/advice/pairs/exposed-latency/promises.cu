// Loops that wait for the loads of their own iteration; then the loads of the next iteration start before the work
// of this one.

// A polynomial of values from memory.
extern "C" __global__ void faulty_polynomial(const float* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float v = x[i + k * stride], p = v;
#pragma unroll
        for (int j = 0; j < 24; ++j) p = p * v + 0.5f;
        s += p;
    }
    y[i] = s;
}
extern "C" __global__ void mended_polynomial(const float* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0, next = x[i];
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float v = next, p = v;
        if (k + 1 < n) next = x[i + (k + 1) * stride];
#pragma unroll
        for (int j = 0; j < 24; ++j) p = p * v + 0.5f;
        s += p;
    }
    y[i] = s;
}
// Exponentials of two streams.
extern "C" __global__ void faulty_streams(const float* a, const float* b, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float p = a[i + k * stride], q = b[i + k * stride];
#pragma unroll
        for (int j = 0; j < 8; ++j) { p = __expf(p - q); q = q * p + 1.f; }
        s += p + q;
    }
    y[i] = s;
}
extern "C" __global__ void mended_streams(const float* a, const float* b, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0, next_p = a[i], next_q = b[i];
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float p = next_p, q = next_q;
        if (k + 1 < n) { next_p = a[i + (k + 1) * stride]; next_q = b[i + (k + 1) * stride]; }
#pragma unroll
        for (int j = 0; j < 8; ++j) { p = __expf(p - q); q = q * p + 1.f; }
        s += p + q;
    }
    y[i] = s;
}
// Vectors of four, a row for each warp.
extern "C" __global__ void faulty_rows(const float4* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float4 v = x[i + k * stride];
#pragma unroll
        for (int j = 0; j < 10; ++j) {
            v.x = v.x * v.y + v.z; v.y = v.y * v.z + v.w; v.z = v.z * v.w + v.x; v.w = v.w * v.x + v.y;
        }
        s += v.x + v.y + v.z + v.w;
    }
    y[i] = s;
}
extern "C" __global__ void mended_rows(const float4* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
    float4 next = x[i];
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
        float4 v = next;
        if (k + 1 < n) next = x[i + (k + 1) * stride];
#pragma unroll
        for (int j = 0; j < 10; ++j) {
            v.x = v.x * v.y + v.z; v.y = v.y * v.z + v.w; v.z = v.z * v.w + v.x; v.w = v.w * v.x + v.y;
        }
        s += v.x + v.y + v.z + v.w;
    }
    y[i] = s;
}
// No loop: the largest element of rows of 256, one row a CTA; then two rows, the loads of both first.
__device__ __forceinline__ float find_max(float v) {
#pragma unroll
    for (int m = 16; m; m >>= 1) v = fmaxf(v, __shfl_xor_sync(~0u, v, m));
    return v;
}
extern "C" __global__ void faulty_softmax(const float* x, float* y) {
    __shared__ float largest[8], total[8];
    int i = blockIdx.x * 256 + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float v = x[i], m = find_max(v);
    if (lane == 0) largest[warp] = m;
    __syncthreads();
    m = find_max(largest[lane % 8]);
    float e = __expf(v - m), s = e;
#pragma unroll
    for (int k = 16; k; k >>= 1) s += __shfl_xor_sync(~0u, s, k);
    if (lane == 0) total[warp] = s;
    __syncthreads();
    s = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) s += total[k];
    y[i] = e / s;
}
extern "C" __global__ void mended_softmax(const float* x, float* y) {
    __shared__ float largest[2][8], total[2][8];
    int i = blockIdx.x * 512 + threadIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float v[2], m[2], e[2], s[2];
#define BOTH _Pragma("unroll") for (int j = 0; j < 2; ++j)
    BOTH m[j] = v[j] = x[i + 256 * j];
#pragma unroll
    for (int k = 16; k; k >>= 1) BOTH m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], k));
    if (lane == 0) BOTH largest[j][warp] = m[j];
    __syncthreads();
    BOTH m[j] = largest[j][lane % 8];
#pragma unroll
    for (int k = 16; k; k >>= 1) BOTH m[j] = fmaxf(m[j], __shfl_xor_sync(~0u, m[j], k));
    BOTH s[j] = e[j] = __expf(v[j] - m[j]);
#pragma unroll
    for (int k = 16; k; k >>= 1) BOTH s[j] += __shfl_xor_sync(~0u, s[j], k);
    if (lane == 0) BOTH total[j][warp] = s[j];
    __syncthreads();
    BOTH s[j] = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) BOTH s[j] += total[j][k];
    BOTH y[i + 256 * j] = e[j] / s[j];
}
