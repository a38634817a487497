// Kernels whose floating-point operations have a closed form, beside conversions, moves and divisions, which
// are none. tests/models/test_arithmetic.py has the forms.

#include <cuda_fp16.h>

#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// 2 a k: a product of FP16 numbers in FP32, by scalar multiply-adds
extern "C" __global__ void half_product(const half *a, const half *b, float *c, int columns, int depth) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < depth; k++)
        sum += __half2float(a[row * depth + k]) * __half2float(b[column * depth + k]);
    c[row * columns + column] = sum;
}

// 31: a sum of 32 elements
extern "C" __global__ void thread_sum(const float *in, float *out) {
    const float *mine = in + 32 * INDEX;
    float sum = mine[0];
    for (int i = 1; i < 32; i++) sum += mine[i];
    out[INDEX] = sum;
}

// 2 if it is in range
extern "C" __global__ void axpy(const float *x, float *y, float factor, int n) {
    if (INDEX < n) y[INDEX] = factor * x[INDEX] + y[INDEX];
}

extern "C" __global__ void half_add(const half2 *x, half2 *y) { y[INDEX] = __hadd2(x[INDEX], y[INDEX]); }
extern "C" __global__ void half_multiply(const half2 *x, half2 *y) { y[INDEX] = __hmul2(x[INDEX], y[INDEX]); }
extern "C" __global__ void half_fma(const half2 *x, half2 *y) {
    y[INDEX] = __hfma2(x[INDEX], y[INDEX], x[INDEX]);
}
extern "C" __global__ void double_fma(const double *x, double *y) { y[INDEX] = fma(x[INDEX], y[INDEX], 3.0); }

// 1 each, and a conversion
extern "C" __global__ void quantize(const float *x, signed char *y, float scale) {
    y[INDEX] = (signed char)__float2int_rn(x[INDEX] * scale);
}
extern "C" __global__ void dequantize(const signed char *x, float *y, float scale) { y[INDEX] = x[INDEX] * scale; }

// none: the reciprocals that integer divisions begin with help
extern "C" __global__ void divide(const int *x, int *y, int divisor) {
    y[INDEX] = x[INDEX] / divisor + x[INDEX] % divisor;
}
extern "C" __global__ void divide_wide(const long long *x, long long *y, long long divisor) {
    y[INDEX] = x[INDEX] / divisor;
}

// 5: the reciprocal of an integer that somebody asked for, and two multiply-adds that round it
extern "C" __global__ void invert(const int *x, float *y) { y[INDEX] = __frcp_rn((float)x[INDEX]) > 0.5f; }

// 3 for each of 16 elements, less one: difference, power of two and sum
extern "C" __global__ void power_row(const float *x, float *y) {
    float sum = 0.0f;
    for (int i = 0; i < 16; i++) {
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x[16 * INDEX + i] - 2.0f));
        sum += power;
    }
    y[INDEX] = sum;
}
