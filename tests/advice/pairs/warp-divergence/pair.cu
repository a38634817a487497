// Odd lanes take one branch, even lanes the other; then halves of the CTA.
__device__ void work(float* y, int n, bool side) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    if (side) {
#pragma unroll 2
        for (int k = 0; k < n; ++k) { a = a * a + 1.f; b = b * b + 1.f; c = c * c + 1.f; d = d * d + 1.f; }
    } else {
#pragma unroll 2
        for (int k = 0; k < n; ++k) { a = a + d * 2.f; b = b + a * 2.f; c = c + b * 2.f; d = d + c * 2.f; }
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
extern "C" __global__ void faulty(float* y, int n) { work(y, n, threadIdx.x & 1); }
extern "C" __global__ void mended(float* y, int n) { work(y, n, threadIdx.x >> 7 & 1); }
