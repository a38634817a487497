// FP16 GEMM with FP32 sums, C = A * B, all row-major, steps 3.0 and 3.1: as step 2.1, with STAGES tiles that
// cp.async fills. 16 x 16 threads: 2 x 4 warps, each with TILES x TILES steps of 16 x 8, 32 deep.
// A row of shared memory is 128 bytes, eight chunks of 16; chunk c of row r lies at place c ^ (r % 8), so the
// eight rows that ldmatrix reads at once touch all banks. Two rows of the A tile (32 deep) fill one such row,
// and a row of the B tile as many as it needs.
#include <cuda_fp16.h>

constexpr int BM = 32 * TILES;
constexpr int BN = 32 * TILES;
constexpr int BK = 32;
constexpr int A_ROWS = BM / 2;       // rows of shared memory of an A tile
constexpr int B_PARTS = BN / 64;     // rows of shared memory per row of the B tile
constexpr int B_ROWS = BK * B_PARTS;
constexpr int ROW_BYTES = 128;
constexpr int A_BYTES = A_ROWS * ROW_BYTES;
constexpr int B_BYTES = B_ROWS * ROW_BYTES;

__device__ __forceinline__ unsigned shared_address(const void* place) {
    return static_cast<unsigned>(__cvta_generic_to_shared(place));
}

__device__ __forceinline__ void mma(float* d, const unsigned* a, const unsigned* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices: a 16 x 16 fragment of A.
__device__ __forceinline__ void load_a(unsigned* a, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                 : "r"(address));
}

// Two 8 x 8 matrices, transposed: a 16 x 8 fragment of B.
__device__ __forceinline__ void load_b(unsigned* b, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(b[0]), "=r"(b[1])
                 : "r"(address));
}

// Hides how a word was made, so that it is not made again for each use.
__device__ __forceinline__ unsigned opaque(unsigned word) {
    asm volatile("" : "+r"(word));
    return word;
}

static_assert(A_BYTES == B_BYTES);

__device__ __forceinline__ void copy_chunk(unsigned to, const half* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

extern "C" __global__ void mma_stages(const half* A, const half* B, float* C, int M, int N, int K) {
    __shared__ uint4 a_tiles[STAGES * A_ROWS][8];
    __shared__ uint4 b_tiles[STAGES * B_ROWS][8];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int block_row = blockIdx.y * BM;
    const int block_column = blockIdx.x * BN;
    const int warp_row = warp / 4 * (16 * TILES);
    const int warp_column = warp % 4 * (8 * TILES);

    const unsigned a_base = shared_address(a_tiles);
    const unsigned b_base = shared_address(b_tiles);

    // What this thread copies of each tile: one chunk of every 32nd row of shared memory.
    const int chunk = thread % 8;
    const int place = thread / 8 * ROW_BYTES + (chunk ^ (thread / 8 % 8)) * 16;
    const half* a_global = A + (block_row + thread / 4) * K + thread % 4 * 8;
    const half* b_global =
        B + thread / 8 / B_PARTS * N + block_column + thread / 8 % B_PARTS * 64 + chunk * 8;

    // Where this lane reads the first fragment of A for each half of the depth, and those of B in a row.
    unsigned a_place[2];
    for (int k = 0; k < 2; ++k) {
        const int row = warp_row + lane % 16;
        a_place[k] = a_base + row / 2 * ROW_BYTES + ((row % 2 * 4 + 2 * k + lane / 16) ^ (row / 2 % 8)) * 16;
    }
    unsigned b_place[TILES];
    for (int j = 0; j < TILES; ++j) {
        const int column = warp_column / 8 + j;
        const int row = lane % 16 * B_PARTS + column / 8;
        b_place[j] = b_base + row * ROW_BYTES + (column % 8 ^ (row % 8)) * 16;
    }

    const unsigned to = a_base + place;
    const half* a_from[A_ROWS / 32];
    const half* b_from[B_ROWS / 32];
    for (int i = 0; i < A_ROWS / 32; ++i) a_from[i] = a_global + 64 * i * K;
    for (int i = 0; i < B_ROWS / 32; ++i) b_from[i] = b_global + 32 / B_PARTS * i * N;
    auto copy = [&](int stage, int start) {
        const unsigned at = opaque(to + stage * A_BYTES);
        for (int i = 0; i < A_ROWS / 32; ++i) copy_chunk(at + 32 * i * ROW_BYTES, a_from[i] + opaque(start));
        for (int i = 0; i < B_ROWS / 32; ++i) {
            copy_chunk(at + (b_base - a_base) + 32 * i * ROW_BYTES, b_from[i] + start * N);
        }
        asm volatile("cp.async.commit_group;");
    };

    for (int stage = 0; stage < STAGES - 1; ++stage) copy(stage, stage * BK);

    float sums[TILES][TILES][4] = {};
    const int steps = K / BK;
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        // Beyond the end the last tile is copied again, so that waiting stays the same.
        copy((step + STAGES - 1) % STAGES, min(step + STAGES - 1, steps - 1) * BK);
        const unsigned read = opaque(step % STAGES * A_BYTES);
        for (int k = 0; k < 2; ++k) {
            unsigned a[TILES][4];
            unsigned b[TILES][2];
            for (int i = 0; i < TILES; ++i) load_a(a[i], a_place[k] + read + 8 * i * ROW_BYTES);
            for (int j = 0; j < TILES; ++j) {
                load_b(b[j], b_place[j] + read + 16 * k * B_PARTS * ROW_BYTES);
            }
            for (int i = 0; i < TILES; ++i) {
                for (int j = 0; j < TILES; ++j) mma(sums[i][j], a[i], b[j]);
            }
        }
    }
    const int group = lane / 4;
    const int pair = lane % 4;
    for (int i = 0; i < TILES; ++i) {
        for (int j = 0; j < TILES; ++j) {
            const int row = block_row + warp_row + 16 * i + group;
            const int column = block_column + warp_column + 8 * j + 2 * pair;
            C[row * N + column] = sums[i][j][0];
            C[row * N + column + 1] = sums[i][j][1];
            C[(row + 8) * N + column] = sums[i][j][2];
            C[(row + 8) * N + column + 1] = sums[i][j][3];
        }
    }
}
