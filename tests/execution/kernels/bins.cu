// Addresses that hang on words of each lane, and what bounds them: bins of histograms, a table, a hash.

extern "C" __global__ void counted(const unsigned char *samples, unsigned *bins, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(bins + samples[i], 1);
}

extern "C" __global__ void counted_in_shared(const unsigned char *samples, unsigned *bins, int n) {
  __shared__ unsigned own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(own + samples[i], 1);
  __syncthreads();
  atomicAdd(bins + threadIdx.x, own[threadIdx.x]);
}

// Each CTA has bins of its own.
extern "C" __global__ void counted_apart(const unsigned char *samples, unsigned *bins, int n) {
  unsigned *own = bins + blockIdx.x * 256;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(own + samples[i], 1);
}

// Samples from 0 to 1, in bins of equal width.
extern "C" __global__ void sorted_into(const float *samples, unsigned *bins, int n, float width) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    atomicAdd(bins + static_cast<int>(samples[i] * width), 1);
}

extern "C" __global__ void added(const int *index, const float *values, float *sums, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sums + index[i], values[i]);
}

extern "C" __global__ void hashed(const unsigned *keys, const float *table, float *out, unsigned mask) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = table[keys[i] * 2654435761u & mask];
}

// Three neighbours of each place in rows of an odd length: a grid of this many CTAs is looked at in parts.
extern "C" __global__ void averaged(const float *image, float *out, int width) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int x = i % width, y = i / width;
  const float *row = image + y * (width + 2);
  out[i] = row[x] + row[x + 1] + row[x + 2];
}

// Open addressing: a key goes to the first free slot from its hash on.
extern "C" __global__ void inserted(const unsigned *keys, unsigned *slots, unsigned mask) {
  const unsigned key = keys[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned slot = key * 2654435761u & mask;; slot = slot + 1 & mask) {
    const unsigned found = atomicCAS(slots + slot, 0u, key);
    if (found == 0u || found == key) break;
  }
}

// A step of a bitonic sort.
extern "C" __global__ void swapped(unsigned *keys, unsigned distance, unsigned run) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ distance;
  if (other <= i) return;
  const unsigned a = keys[i], b = keys[other];
  if (((i & run) == 0) == (a > b)) {
    keys[i] = b;
    keys[other] = a;
  }
}
