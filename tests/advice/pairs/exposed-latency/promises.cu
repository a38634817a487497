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
