// Dumped as sweeps_86.txt: cuobjdump -sass of nvcc -cubin -arch=sm_86 sweeps.cu, without encodings.
// Each warp reads its own 128 bytes of each of many rows, one row after another, and begins again.
extern "C" __global__ void sweeps(const float *data, float *out, int rows, int row_words, int sweeps) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (int row = 0; row < rows; ++row) sum += data[(size_t)row * row_words + at];
  out[at] = sum;
}
