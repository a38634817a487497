// Forward attention with mma.sync, head size 128, in four steps (Dao, FlashAttention-2).
//
// A CTA of four warps takes 64 queries, 16 to a warp, and goes through keys and values 64 at a time; scores,
// probabilities and sums stay in registers.
//
// STEP: 1 plain tiles in shared memory, copied and waited for one by one; 2 their 16-byte chunks permuted
// against bank conflicts; 3 keys ahead by one tile, values copied while scores are made; 4 LDSM of four
// matrices instead of two.
#include <cuda_bf16.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;

constexpr int QUERIES = 64;
constexpr int KEYS = 64;
constexpr int SIZE = 128;  // of a head
constexpr int THREADS = 128;
constexpr int CHUNK = 8;  // values in 16 bytes
constexpr int ROW_BYTES = SIZE * 2;
constexpr int TILE_BYTES = KEYS * ROW_BYTES;
constexpr int BLOCKS_OF_SIZE = SIZE / 16;  // steps along the head
constexpr int BLOCKS_OF_KEYS = KEYS / 16;

__device__ __forceinline__ uint32_t place(int row, int chunk) {
#if STEP >= 2
  return row * ROW_BYTES + (chunk ^ (row & 7)) * 16;
#else
  return row * ROW_BYTES + chunk * 16;
#endif
}

// Copies 64 rows of a head into shared memory.
__device__ __forceinline__ void copy_tile(uint32_t tile, const bf16 *rows) {
#pragma unroll
  for (int round = 0; round < KEYS * SIZE / CHUNK / THREADS; ++round) {
    const int number = round * THREADS + threadIdx.x;
    const int row = number / (SIZE / CHUNK);
    const int chunk = number % (SIZE / CHUNK);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(tile + place(row, chunk)),
                 "l"(rows + row * SIZE + chunk * CHUNK));
  }
  asm volatile("cp.async.commit_group;");
}

template <int LEFT>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
  __syncthreads();
}

__device__ __forceinline__ void load_4(uint32_t *to, uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

__device__ __forceinline__ void load_2(uint32_t *to, uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from));
}

__device__ __forceinline__ void load_4_transposed(uint32_t *to, uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

__device__ __forceinline__ void load_2_transposed(uint32_t *to, uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(from));
}

__device__ __forceinline__ void multiply(float *sum, const uint32_t *a, const uint32_t *b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t packed(float low, float high) {
  const __nv_bfloat162 both = __float22bfloat162_rn({low, high});
  return reinterpret_cast<const uint32_t &>(both);
}

// Over the four lanes that hold a row of a product.
__device__ __forceinline__ float row_maximum(float value) {
  value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
  return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}

__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(~0u, value, 1);
  return value + __shfl_xor_sync(~0u, value, 2);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(const bf16 *queries, const bf16 *keys, const bf16 *values, bf16 *out, int heads, int n_queries,
              int n_keys) {
  extern __shared__ __align__(128) unsigned char bytes[];
  const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(bytes));
  const int lane = threadIdx.x % 32;
  const int first_row = threadIdx.x / 32 * 16;
  const int tiles = n_queries / QUERIES;
  const size_t head = blockIdx.x / tiles;
  if (head >= heads) return;
  const size_t offset = (head * n_queries + blockIdx.x % tiles * QUERIES) * SIZE;
  queries += offset;
  out += offset;
  keys += head * n_keys * SIZE;
  values += head * n_keys * SIZE;

  uint32_t query[BLOCKS_OF_SIZE][4];
  float sums[2 * BLOCKS_OF_SIZE][4] = {};
  float maximum[2] = {-1e30f, -1e30f};
  float total[2] = {};
  const float scale = rsqrtf(static_cast<float>(SIZE));

  copy_tile(shared, queries);
  wait_for_copies<0>();
#pragma unroll
  for (int d = 0; d < BLOCKS_OF_SIZE; ++d)
    load_4(query[d], shared + place(first_row + lane % 16, 2 * d + lane / 16));
  __syncthreads();

#if STEP >= 3
  const uint32_t value_tile = shared + 2 * TILE_BYTES;
  copy_tile(shared, keys);
#else
  const uint32_t key_tile = shared;
  const uint32_t value_tile = shared + TILE_BYTES;
#endif
  for (int step = 0; step < n_keys / KEYS; ++step) {
#if STEP >= 3
    const uint32_t key_tile = shared + step % 2 * TILE_BYTES;
    __syncthreads();
    copy_tile(value_tile, values);
    wait_for_copies<1>();
#else
    copy_tile(key_tile, keys);
    wait_for_copies<0>();
#endif

    float scores[2 * BLOCKS_OF_KEYS][4] = {};
    uint32_t key[2 * BLOCKS_OF_KEYS][BLOCKS_OF_SIZE][2];
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS_OF_KEYS; ++n) {
#if STEP >= 4
#pragma unroll
      for (int d = 0; d < BLOCKS_OF_SIZE; d += 2)
        load_4(key[n][d], key_tile + place(8 * n + lane % 8, 2 * d + lane / 8));
#else
#pragma unroll
      for (int d = 0; d < BLOCKS_OF_SIZE; ++d)
        load_2(key[n][d], key_tile + place(8 * n + lane % 8, 2 * d + lane / 8 % 2));
#endif
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS_OF_KEYS; ++n)
#pragma unroll
      for (int d = 0; d < BLOCKS_OF_SIZE; ++d) multiply(scores[n], query[d], key[n][d]);

#if STEP >= 3
    if (step + 1 < n_keys / KEYS)
      copy_tile(shared + (step + 1) % 2 * TILE_BYTES, keys + KEYS * SIZE);
    else
      asm volatile("cp.async.commit_group;");
#endif

    float highest[2] = {maximum[0], maximum[1]};
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS_OF_KEYS; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] *= scale;
        highest[i / 2] = fmaxf(highest[i / 2], scores[n][i]);
      }
    float shrinks[2];
    float added[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = row_maximum(highest[half]);
      shrinks[half] = __expf(maximum[half] - highest[half]);
      maximum[half] = highest[half];
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS_OF_SIZE; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] *= shrinks[i / 2];
    uint32_t share[BLOCKS_OF_KEYS][4];
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS_OF_KEYS; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = __expf(scores[n][i] - maximum[i / 2]);
        added[i / 2] += scores[n][i];
      }
      share[n / 2][n % 2 * 2] = packed(scores[n][0], scores[n][1]);
      share[n / 2][n % 2 * 2 + 1] = packed(scores[n][2], scores[n][3]);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) total[half] = total[half] * shrinks[half] + row_sum(added[half]);

#if STEP >= 3
    wait_for_copies<1>();
#else
    copy_tile(value_tile, values);
    wait_for_copies<0>();
#endif
    uint32_t value[BLOCKS_OF_KEYS][2 * BLOCKS_OF_SIZE][2];
#pragma unroll
    for (int k = 0; k < BLOCKS_OF_KEYS; ++k) {
#if STEP >= 4
#pragma unroll
      for (int n = 0; n < 2 * BLOCKS_OF_SIZE; n += 2)
        load_4_transposed(value[k][n], value_tile + place(16 * k + lane % 16, n + lane / 16));
#else
#pragma unroll
      for (int n = 0; n < 2 * BLOCKS_OF_SIZE; ++n)
        load_2_transposed(value[k][n], value_tile + place(16 * k + lane % 16, n));
#endif
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS_OF_SIZE; ++n)
#pragma unroll
      for (int k = 0; k < BLOCKS_OF_KEYS; ++k) multiply(sums[n], share[k], value[k][n]);

    keys += KEYS * SIZE;
    values += KEYS * SIZE;
  }

#pragma unroll
  for (int n = 0; n < 2 * BLOCKS_OF_SIZE; ++n) {
    uint32_t *row = reinterpret_cast<uint32_t *>(out + (first_row + lane / 4) * SIZE + 8 * n + lane % 4 * 2);
    row[0] = packed(sums[n][0] / total[0], sums[n][1] / total[0]);
    row[8 * SIZE / 2] = packed(sums[n][2] / total[1], sums[n][3] / total[1]);
  }
}
