// Exponentials on the XU alone; then some by a polynomial on the FMA pipe, so many that both
// pipes are as busy.
__device__ __forceinline__ float exp2_by_fma(float x) {
    float r = x + 12582912.0f;
    float f = x - (r - 12582912.0f);
    float p = 0.3372f * f + 0.6572f;
    p = p * f + 1.0f;
    return __int_as_float(__float_as_int(p) + (__float_as_int(r) << 23));
}
template <int EVERY> __device__ void work(float* y, int n) {
    float s[8], x = threadIdx.x * 0.001f;
#pragma unroll
    for (int j = 0; j < 8; ++j) s[j] = j;
#pragma unroll 1
    for (int k = 0; k < n; ++k) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            float e, v = x - s[j];
            if (EVERY && j % EVERY == 0) e = exp2_by_fma(v);
            else asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
            s[j] = e;
        }
    }
    float t = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) t += s[j];
    y[blockIdx.x * blockDim.x + threadIdx.x] = t;
}
extern "C" __global__ void faulty(float* y, int n) { work<0>(y, n); }
extern "C" __global__ void mended(float* y, int n) { work<3>(y, n); }
