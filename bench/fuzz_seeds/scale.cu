extern "C" __global__ void scale(float *x, float a, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x & 63] = i < n ? x[i] : 0.f;
    __syncthreads();
    float sum = 0;
    for (int j = 0; j < n; j += 64) sum += tile[(threadIdx.x + j) & 63] * a;
    if (i < n) x[i] = sum;
}
