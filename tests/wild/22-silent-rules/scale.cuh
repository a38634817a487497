#pragma once
__device__ __forceinline__ float inner(const float* p, int i) {
    return p[i * 33] * 2.f;
}
__device__ __forceinline__ float middle(const float* p, int i) {
    return inner(p, i) + 1.f;
}
