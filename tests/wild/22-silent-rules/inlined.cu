#include "scale.cuh"
extern "C" __global__ void k(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = middle(x, i);
    y[i] = a;
}
