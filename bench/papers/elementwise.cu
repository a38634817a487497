// Elementwise kernels of a transformer layer, in the three forms that PyTorch launches them in, written anew.
//
// All have CTAs of 128 threads. `vectors`: four elements of a thread in one access (their
// number is a multiple of four). `unrolled`: four elements,
// a CTA's width apart, each converted. `offsets`: as unrolled, where an operand is shared by rows or columns, so
// that each element's row is found by a division (a product and a shift: quotient = (mulhi(i, factor) + i) >> shift).
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int THREADS = 128, PER_THREAD = 4;

template <typename T>
struct alignas(PER_THREAD * sizeof(T)) Vector {
    T values[PER_THREAD];
};

template <typename T, typename Function>
__device__ void map_vectors(T* out, int n, Function function) {
    const int vector = blockIdx.x * THREADS + threadIdx.x;
    if ((vector + 1) * PER_THREAD <= n) reinterpret_cast<Vector<T>*>(out)[vector] = function(vector);
}

template <typename T, typename Function>
__device__ Vector<T> apply(const Vector<T>& x, Function function) {
    Vector<T> found;
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) found.values[i] = function(float(x.values[i]));
    return found;
}

template <typename T>
__device__ const Vector<T>& get(const T* from, int vector) {
    return reinterpret_cast<const Vector<T>*>(from)[vector];
}

extern "C" __global__ void vectors_add(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* out, int n) {
    map_vectors(out, n, [=](int v) {
        const Vector<__nv_bfloat16> a = get(x, v), b = get(y, v);
        Vector<__nv_bfloat16> sum;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) sum.values[i] = float(a.values[i]) + float(b.values[i]);
        return sum;
    });
}

extern "C" __global__ void vectors_multiply(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* out, int n) {
    map_vectors(out, n, [=](int v) {
        const Vector<__nv_bfloat16> a = get(x, v), b = get(y, v);
        Vector<__nv_bfloat16> product;
#pragma unroll
        for (int i = 0; i < PER_THREAD; ++i) product.values[i] = float(a.values[i]) * float(b.values[i]);
        return product;
    });
}

extern "C" __global__ void vectors_square(const float* x, float* out, int n) {
    map_vectors(out, n, [=](int v) { return apply(get(x, v), [](float value) { return value * value; }); });
}

extern "C" __global__ void vectors_silu(const __nv_bfloat16* x, __nv_bfloat16* out, int n) {
    map_vectors(out, n, [=](int v) {
        return apply(get(x, v), [](float value) { return __nv_bfloat16(value / (1.0f + expf(-value))); });
    });
}

extern "C" __global__ void vectors_gelu(const __nv_bfloat16* x, __nv_bfloat16* out, int n) {
    map_vectors(out, n, [=](int v) {
        return apply(get(x, v), [](float value) {
            return __nv_bfloat16(value * 0.5f * (1.0f + erff(value * 0.70710678f)));
        });
    });
}

extern "C" __global__ void vectors_scale(const __nv_bfloat16* x, __nv_bfloat16* out, float factor, int n) {
    map_vectors(out, n, [=](int v) {
        return apply(get(x, v), [=](float value) { return __nv_bfloat16(value * factor); });
    });
}

extern "C" __global__ void vectors_shift(const float* x, float* out, float summand, int n) {
    map_vectors(out, n, [=](int v) { return apply(get(x, v), [=](float value) { return value + summand; }); });
}

extern "C" __global__ void vectors_rsqrt(const float* x, float* out, int n) {
    map_vectors(out, n, [=](int v) { return apply(get(x, v), [](float value) { return rsqrtf(value); }); });
}

template <int COUNT, typename To, typename Function>
__device__ void map_unrolled(To* out, int n, Function function) {
    const int first = blockIdx.x * THREADS * COUNT + threadIdx.x;
    To found[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        if (first + i * THREADS < n) found[i] = function(first + i * THREADS);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        if (first + i * THREADS < n) out[first + i * THREADS] = found[i];
}

extern "C" __global__ void unrolled_to_float(const __nv_bfloat16* x, float* out, int n) {
    map_unrolled<4>(out, n, [=](int i) { return float(x[i]); });
}

extern "C" __global__ void unrolled_to_bfloat16(const float* x, __nv_bfloat16* out, int n) {
    map_unrolled<4>(out, n, [=](int i) { return __nv_bfloat16(x[i]); });
}

__device__ uint32_t divide(uint32_t i, uint32_t factor, uint32_t shift) { return (__umulhi(i, factor) + i) >> shift; }

extern "C" __global__ void offsets_scale_rows(const float* x, const float* scale, float* out, uint32_t factor,
                                              uint32_t shift, int n) {
    map_unrolled<2>(out, n, [=](int i) { return x[i] * scale[divide(i, factor, shift)]; });
}

extern "C" __global__ void offsets_scale_columns(const __nv_bfloat16* x, const __nv_bfloat16* scale, __nv_bfloat16* out,
                                                 uint32_t factor, uint32_t shift, int columns, int n) {
    map_unrolled<4>(out, n, [=](int i) {
        const int column = i - divide(i, factor, shift) * columns;
        return __nv_bfloat16(float(x[i]) * float(scale[column]));
    });
}
