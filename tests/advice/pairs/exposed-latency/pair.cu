// A sum in which each addition waits for its load; then loads run eight iterations ahead.
extern "C" __global__ void faulty(const float* a, float* b, int n) {
    float s = 0;
    const float* p = a + threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < n; ++k) s = s * p[k * 256] + 1.f;
    b[blockIdx.x * 256 + threadIdx.x] = s;
}
extern "C" __global__ void mended(const float* a, float* b, int n) {
    float s = 0, r[8];
    const float* p = a + threadIdx.x;
#pragma unroll
    for (int j = 0; j < 8; ++j) r[j] = p[j * 256];
#pragma unroll 1
    for (int k = 0; k < n; k += 8) {
#pragma unroll
        for (int j = 0; j < 8; ++j) { s = s * r[j] + 1.f; r[j] = p[(k + j + 8) * 256]; }
    }
    b[blockIdx.x * 256 + threadIdx.x] = s;
}
