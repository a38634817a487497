// A transposition whose bank conflicts DRAM hides: without padding, then with it.
extern "C" __global__ void transpose(const float* x, float* y, int w, int h) {
    __shared__ float tile[32][32 + PAD];
    int a = blockIdx.x * 32 + threadIdx.x, b = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = x[(b + j) * w + a];
    __syncthreads();
    a = blockIdx.y * 32 + threadIdx.x, b = blockIdx.x * 32 + threadIdx.y;
#pragma unroll
    for (int j = 0; j < 32; j += 8) y[(b + j) * h + a] = tile[threadIdx.x][threadIdx.y + j];
}
