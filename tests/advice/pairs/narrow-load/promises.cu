// Elementwise kernels, one element a thread; then vectors of 16 bytes, as many elements a thread as they hold.
#include <cuda_fp16.h>

// An affine map of halves.
extern "C" __global__ void faulty_halves(const __half* __restrict__ x, __half* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(__half2float(x[i]) * 0.5f + 1.f);
}
extern "C" __global__ void mended_halves(const uint4* __restrict__ x, uint4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uint4 v = x[i];
        __half* h = reinterpret_cast<__half*>(&v);
#pragma unroll
        for (int j = 0; j < 8; ++j) h[j] = __float2half(__half2float(h[j]) * 0.5f + 1.f);
        y[i] = v;
    }
}
// A difference of bytes.
extern "C" __global__ void faulty_bytes(const unsigned char* __restrict__ a, const unsigned char* __restrict__ b, unsigned char* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] ^ b[i];
}
extern "C" __global__ void mended_bytes(const uint4* __restrict__ a, const uint4* __restrict__ b, uint4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        uint4 v = a[i], w = b[i];
        y[i] = make_uint4(v.x ^ w.x, v.y ^ w.y, v.z ^ w.z, v.w ^ w.w);
    }
}
// Weights of a row in shared memory: four words of each thread one by one, then at once.
extern "C" __global__ void faulty_row(const float* x, float* y, int n) {
    __shared__ float w[1024];
    for (int j = threadIdx.x; j < 1024; j += blockDim.x) w[j] = x[j];
    __syncthreads();
    float s = 0;
    const float* p = x + (blockIdx.x * blockDim.x + threadIdx.x) * 4;
#pragma unroll 1
    for (int k = 0; k < n; ++k, p += 4096 * 4) {
        const float* v = w + (k & 255) * 4;
        s += p[0] * v[0] + p[1] * v[1] + p[2] * v[2] + p[3] * v[3];
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void mended_row(const float* x, float* y, int n) {
    __shared__ float4 w[256];
    for (int j = threadIdx.x; j < 256; j += blockDim.x) w[j] = reinterpret_cast<const float4*>(x)[j];
    __syncthreads();
    float s = 0;
    const float4* p = reinterpret_cast<const float4*>(x) + blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k, p += 4096) {
        float4 v = w[k & 255], u = *p;
        s += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
