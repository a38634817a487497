// A stencil along a row, its radius a template argument, its place a namespace.
#ifndef RADIUS
#define RADIUS 3
#endif
#ifndef SPACE
#define SPACE filters
#endif

namespace SPACE {
template <int kRadius, typename Real>
__global__ void stencil(const Real *in, Real *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kRadius || i >= n - kRadius) return;
  Real sum = 0;
#pragma unroll
  for (int j = -kRadius; j <= kRadius; ++j) {
    Real value = in[i + j];
#pragma unroll
    for (int power = 0; power < 6; ++power) value = value * value + Real(0.125);
    sum += value;
  }
  out[i] = sum;
}
template __global__ void stencil<RADIUS, float>(const float *, float *, int);
}  // namespace SPACE
