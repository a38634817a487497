// A loop of 5,000 instructions; then one of some forty.
template <int UNROLL> __device__ void work(float* y, int n) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
#pragma unroll 1
    for (int k = 0; k < n; k += UNROLL) {
#pragma unroll
        for (int j = 0; j < UNROLL; ++j) { a = a * b + 1.f; b = b * c + 1.f; c = c * d + 1.f; d = d * a + 1.f; }
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
extern "C" __global__ void faulty(float* y, int n) { work<1250>(y, n); }
extern "C" __global__ void mended(float* y, int n) { work<10>(y, n); }
