// One warp of eight does all of the loop between two barriers; then each does an eighth.
__device__ void step(float* x, int n, bool works) {
    __shared__ float s[256];
    float a = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < 100; ++k) {
        if (works) {
#pragma unroll 4
            for (int j = 0; j < n; ++j) a = a * a + 1.f;
        }
        s[threadIdx.x] = a;
        __syncthreads();
        a += s[(threadIdx.x + 1) & 255];
        __syncthreads();
    }
    x[blockIdx.x * 256 + threadIdx.x] = a;
}
extern "C" __global__ void faulty(float* x, int n) { step(x, n, threadIdx.x < 32); }
extern "C" __global__ void mended(float* x, int n) { step(x, n / 8, true); }
