// Each CTA writes a column of a table: eight CTAs beside each other fill its sectors.

extern "C" __global__ void __launch_bounds__(256)
    columns(const unsigned *__restrict__ from, unsigned *__restrict__ to) {
  unsigned sum = 0;
  for (int turn = 0; turn < 4; ++turn)
    sum += from[(blockIdx.x * 4 + turn) * 256 + threadIdx.x];
  to[threadIdx.x * gridDim.x + blockIdx.x] = sum;
}
