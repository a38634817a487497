// Addresses that hang on words of memory: of the whole warp (a page, a delay), or of each lane.

// Rows of 256 floats; a table says which row a CTA copies.
extern "C" __global__ void paged(const float *pool, const int *pages, float *out) {
  const int page = pages[blockIdx.x];
  out[blockIdx.x * 256 + threadIdx.x] = pool[page * 256 + threadIdx.x];
}

// Each CTA adds up 64 rows of 4,096 floats, each so much later as a delay says.
extern "C" __global__ void delayed(const float *rows, const float *delays, float *out) {
  float sum = 0;
  for (int row = 0; row < 64; ++row) {
    const int later = static_cast<int>(delays[row] * 0.5f);
    sum += rows[row * 4096 + blockIdx.x * 256 + threadIdx.x + later];
  }
  out[blockIdx.x * 256 + threadIdx.x] = sum;
}

extern "C" __global__ void gathered(const float *pool, const int *index, float *out) {
  const int place = blockIdx.x * 256 + threadIdx.x;
  out[place] = pool[index[place]];
}

// A row that each lane looks up, and a pitch that all share.
extern "C" __global__ void gathered_rows(const float *pool, const int *index, const int *pitch, float *out) {
  const int place = blockIdx.x * 256 + threadIdx.x;
  out[place] = pool[pitch[index[place]] * 256];
}
