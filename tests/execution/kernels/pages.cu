// Pages of 64 rows that a table names; each row holds 256 bytes of each head.
extern "C" __global__ void tiles_of_pages(const int4 *pool, const int *pages, int4 *out, int heads) {
  __shared__ int4 tile[64 * 16];
  const int page = pages[blockIdx.y];
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(tile));
  for (int place = threadIdx.x; place < 64 * 16; place += 128) {
    const size_t row = static_cast<size_t>(page) * 64 + place / 16;
    const int4 *from = pool + (row * heads + blockIdx.x) * 16 + place % 16;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + place * 16), "l"(from));
  }
  asm volatile("cp.async.wait_all;");
  __syncthreads();
  int4 sum = {};
  for (int row = 0; row < 64; ++row) {
    const int4 found = tile[row * 16 + threadIdx.x % 16];
    sum.x += found.x + found.y;
    sum.z += found.z ^ found.w;
  }
  out[(blockIdx.y * gridDim.x + blockIdx.x) * 128 + threadIdx.x] = sum;
}

// The same pages, each read by all CTAs along x.
extern "C" __global__ void readers_of_pages(const int4 *pool, const int *pages, int4 *out, int heads) {
  const size_t row = static_cast<size_t>(pages[blockIdx.y]) * 64 + threadIdx.x / 16;
  int4 sum = {};
  for (int place = 0; place < 8; ++place) {
    const int4 found = pool[(row + place * 8) * heads * 16 + threadIdx.x % 16];
    sum.x += found.x + found.y;
    sum.z += found.z ^ found.w;
  }
  out[(blockIdx.y * gridDim.x + blockIdx.x) * 128 + threadIdx.x] = sum;
}
