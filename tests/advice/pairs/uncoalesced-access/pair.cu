// One word of each 128-byte line.
extern "C" __global__ void faulty_stride(const float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[(long long)i * 32];
}
extern "C" __global__ void mended_stride(const float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i];
}
// A column of a matrix of 4,096 columns is written, then a row.
extern "C" __global__ void faulty_column_store(const float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[(i & 255) * 4096 + (i >> 8)] = a[i];
}
extern "C" __global__ void mended_column_store(const float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i];
}
// Each thread sums a row of a matrix; then a column.
extern "C" __global__ void faulty_row_walk(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s += a[i * n + k];
    b[i] = s;
}
extern "C" __global__ void mended_row_walk(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, m = gridDim.x * blockDim.x;
    float s = 0;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s += a[k * m + i];
    b[i] = s;
}
