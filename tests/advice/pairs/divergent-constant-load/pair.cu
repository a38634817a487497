// A table in constant memory: each lane reads another word, then all lanes the same.
__constant__ float table[256] = {1};
__device__ void work(float* y, int n, int lane_step) {
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = s * 0.5f + table[(threadIdx.x * lane_step + k) & 255];
    y[blockIdx.x * blockDim.x + threadIdx.x] = s;
}
extern "C" __global__ void faulty(float* y, int n) { work(y, n, 1); }
extern "C" __global__ void mended(float* y, int n) { work(y, n, 0); }
