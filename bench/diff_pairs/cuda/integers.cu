// Digits of a number in a base that is a variable, a constant, or a power of two.
#ifndef MODE
#define MODE 0
#endif

extern "C" __global__ void digit_sum(const unsigned *in, unsigned *out, unsigned base) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned left = in[i];
  unsigned sum = 0;
#pragma unroll
  for (int step = 0; step < 16; ++step) {
#if MODE == 0
    sum += left % base;
    left = left / base + step;
#elif MODE == 1
    sum += left % 10u;
    left = left / 10u + step;
#else
    sum += left & ((1u << base) - 1u);
    left = (left >> base) + step;
#endif
  }
  out[i] = sum;
}
