// One field of a particle out of four: array of structs against struct of arrays.
#ifndef AOS
#define AOS 0
#endif
#ifndef BY_COLUMN
#define BY_COLUMN 0
#endif

struct Particle { float x, y, z, mass; };

extern "C" __global__ void total_mass(const float *fields, float *out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
#if AOS
  out[i] = 0.5f * reinterpret_cast<const Particle *>(fields)[i].mass;
#else
  out[i] = 0.5f * fields[3 * n + i];
#endif
}

// Adds a constant to a matrix of `width` columns: threads of a warp along a row, or down a column.
extern "C" __global__ void add_to_matrix(const float *in, float *out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
#if BY_COLUMN
  out[x * height + y] = in[x * height + y] + 1.0f;
#else
  out[y * width + x] = in[y * width + x] + 1.0f;
#endif
}
