// A constant without its f makes single-precision arithmetic double; then with it.
template <typename T> __device__ void work(float* y, int n, T p, T q) {
    float a = threadIdx.x, b = a + 1;
#pragma unroll 1
    for (int k = 0; k < n; ++k) { a = a * p + q; b = b * p + q; }
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b;
}
extern "C" __global__ void faulty(float* y, int n) { work(y, n, 0.3, 0.7); }
extern "C" __global__ void mended(float* y, int n) { work(y, n, 0.3f, 0.7f); }
// A square root, whose steps test the exponent of the double.
extern "C" __global__ void faulty_root(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) a = sqrt(a * 2.0 + 1.0);
    y[i] = a;
}
extern "C" __global__ void mended_root(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) a = sqrtf(a * 2.0f + 1.0f);
    y[i] = a;
}
