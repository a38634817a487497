// Products of bfloat16 matrices in the tiles of the libraries that AMALI's authors measured.
//
// A CTA computes TILE_M x TILE_N of C in warps of 64 x 64, and goes along K in steps of TILE_K that wait in
// STAGES buffers of shared memory: several are filled by cp.async, one through registers. MMA_K is the depth of
// the instruction: 16 (HMMA.16816) or 8 (HMMA.1688). A is M x K, row by row; B is N x K (B_BY_ROWS 0) or
// K x N (1). Tiles divide the matrices. Chunks of 16 bytes are permuted within lines of 128 bytes (chunk XOR
// line), so that the eight rows of an ldmatrix lie in different banks; all loads of a thread, and all parts of a
// step, then differ by constants or by one XOR.
#include <cuda_bf16.h>
#include <stdint.h>

constexpr int WARP_TILE = 64, CHUNK = 8, CHUNK_BYTES = 16, LINE_CHUNKS = 8;
constexpr int WARPS_N = TILE_N / WARP_TILE;
constexpr int THREADS = TILE_M / WARP_TILE * WARPS_N * 32;
constexpr int B_ROWS = B_BY_ROWS ? TILE_K : TILE_N, B_COLUMNS = B_BY_ROWS ? TILE_N : TILE_K;
constexpr int A_BYTES = TILE_M * TILE_K * 2, STAGE_BYTES = A_BYTES + B_ROWS * B_COLUMNS * 2;

// A matrix of ROWS x COLUMNS as the threads of a CTA bring it: LOADS chunks of each, ROW_STEP rows apart.
template <int ROWS, int COLUMNS>
struct Layout {
    static constexpr int CHUNKS = COLUMNS / CHUNK, ROW_STEP = THREADS / CHUNKS, LOADS = ROWS / ROW_STEP;
    static constexpr int ROWS_PER_LINE = CHUNKS >= LINE_CHUNKS ? 1 : LINE_CHUNKS / CHUNKS;
    static constexpr int MASK = CHUNKS >= LINE_CHUNKS ? LINE_CHUNKS - 1 : CHUNKS - 1;
    __device__ static uint32_t place(int row, int chunk) {
        return row * COLUMNS * 2 + (chunk ^ (row / ROWS_PER_LINE & MASK)) * CHUNK_BYTES;
    }
};
using LayoutA = Layout<TILE_M, TILE_K>;
using LayoutB = Layout<B_ROWS, B_COLUMNS>;

__device__ void copy_async(uint32_t to, const __nv_bfloat16* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ void store_shared(uint32_t to, uint4 v) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

template <bool TRANSPOSED>
__device__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from));
}

__device__ void multiply_16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void multiply_8(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(b));
}

// Where a thread's chunks come from, step by step, and where they go in a stage.
struct Loader {
    const __nv_bfloat16 *a, *b;
    int a_stride, b_stride;
    uint32_t a_to, b_to;
    __device__ Loader(const __nv_bfloat16* a_tile, const __nv_bfloat16* b_tile, int k, int b_row, uint32_t shared)
        : a_stride(k), b_stride(b_row) {
        const int thread = threadIdx.x;
        const int a_row = thread / LayoutA::CHUNKS, a_chunk = thread % LayoutA::CHUNKS;
        const int row = thread / LayoutB::CHUNKS, chunk = thread % LayoutB::CHUNKS;
        a = a_tile + int64_t(a_row) * k + a_chunk * CHUNK;
        b = b_tile + int64_t(row) * b_row + chunk * CHUNK;
        a_to = shared + LayoutA::place(a_row, a_chunk);
        b_to = shared + A_BYTES + LayoutB::place(row, chunk);
    }
    __device__ void advance() {
        a += TILE_K;
        b += B_BY_ROWS ? TILE_K * b_stride : TILE_K;
    }
    template <typename Take>
    __device__ void for_each(uint32_t stage, Take take) {
        const __nv_bfloat16 *from = a, *from_b = b;
#pragma unroll
        for (int i = 0; i < LayoutA::LOADS; ++i, from += LayoutA::ROW_STEP * a_stride)
            take(i, a_to + stage + i * LayoutA::ROW_STEP * TILE_K * 2, from);
#pragma unroll
        for (int i = 0; i < LayoutB::LOADS; ++i, from_b += LayoutB::ROW_STEP * b_stride)
            take(LayoutA::LOADS + i, b_to + stage + i * LayoutB::ROW_STEP * B_COLUMNS * 2, from_b);
    }
    __device__ void fill(uint32_t stage) {
        for_each(stage, [](int, uint32_t to, const __nv_bfloat16* from) { copy_async(to, from); });
        advance();
    }
};

// A warp's products: where its operands lie in a stage, and its sums.
struct Multiplier {
    uint32_t a_from, b_from;
    float sums[4][8][4] = {};
    __device__ explicit Multiplier(uint32_t shared) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int row = warp / WARPS_N * WARP_TILE, column = warp % WARPS_N * WARP_TILE;
        a_from = shared + LayoutA::place(row + lane % 16, lane / 16);
        b_from = shared + A_BYTES +
                 (B_BY_ROWS ? LayoutB::place(lane % 8 + lane / 8 % 2 * 8, column / CHUNK + lane / 16)
                            : LayoutB::place(column + lane % 8 + lane / 16 * 8, lane / 8 % 2));
    }
    __device__ void load(uint32_t (&a)[4][4], uint32_t (&b)[4][4], uint32_t stage, int part) {
        const uint32_t a_part = (a_from + stage) ^ (part * 2 * CHUNK_BYTES);
        const uint32_t b_part = (b_from + stage) ^ (B_BY_ROWS ? 0 : part * 2 * CHUNK_BYTES);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_matrices<false>(a[i], a_part + i * 16 * TILE_K * 2);
            if (B_BY_ROWS)
                load_matrices<true>(b[i], (b_part ^ (i * 2 * CHUNK_BYTES)) + part * 16 * B_COLUMNS * 2);
            else
                load_matrices<false>(b[i], b_part + i * 16 * B_COLUMNS * 2);
        }
    }
    __device__ void multiply(const uint32_t (&a)[4][4], const uint32_t (&b)[4][4]) {
#pragma unroll
        for (int half = 0; half < 16 / MMA_K; ++half)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    if (MMA_K == 16)
                        multiply_16(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                    else
                        multiply_8(sums[i][j], a[i][half * 2], a[i][half * 2 + 1], b[j / 2][j % 2 * 2 + half]);
    }
    __device__ void run_stage(uint32_t stage) {
        uint32_t a[2][4][4], b[2][4][4];
        load(a[0], b[0], stage, 0);
#pragma unroll
        for (int part = 0; part < TILE_K / 16; ++part) {
            if (part + 1 < TILE_K / 16) load(a[(part + 1) % 2], b[(part + 1) % 2], stage, part + 1);
            multiply(a[part % 2], b[part % 2]);
        }
    }
};

__device__ void walk_stages(Multiplier& warp, Loader& loader, int steps) {
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) loader.fill(stage * STAGE_BYTES);
        asm volatile("cp.async.commit_group;");
    }
    uint32_t read = 0, write = (STAGES - 1) * STAGE_BYTES;
    for (int left = steps; left > 0; --left) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES > 1 ? STAGES - 2 : 0));
        __syncthreads();
        if (left >= STAGES) loader.fill(write);
        asm volatile("cp.async.commit_group;");
        warp.run_stage(read);
        write = read;
        read = read == (STAGES - 1) * STAGE_BYTES ? 0 : read + STAGE_BYTES;
    }
}

__device__ void walk_through_registers(Multiplier& warp, Loader& loader, int steps) {
    uint4 held[LayoutA::LOADS + LayoutB::LOADS];
    auto fetch = [&](int i, uint32_t, const __nv_bfloat16* from) { held[i] = *reinterpret_cast<const uint4*>(from); };
    loader.for_each(0, fetch);
    for (int left = steps; left > 0; --left) {
        __syncthreads();
        loader.for_each(0, [&](int i, uint32_t to, const __nv_bfloat16*) { store_shared(to, held[i]); });
        __syncthreads();
        loader.advance();
        if (left > 1) loader.for_each(0, fetch);
        warp.run_stage(0);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
    extern __shared__ __align__(128) __nv_bfloat16 buffers[];
    const uint32_t shared = static_cast<uint32_t>(__cvta_generic_to_shared(buffers));
    const int64_t batch = blockIdx.z, row = blockIdx.x * TILE_M, column = blockIdx.y * TILE_N;
    Loader loader(a + (batch * m + row) * k, b + batch * n * k + (B_BY_ROWS ? column : column * k), k,
                  B_BY_ROWS ? n : k, shared);
    Multiplier warp(shared);
    if (STAGES > 1)
        walk_stages(warp, loader, k / TILE_K);
    else
        walk_through_registers(warp, loader, k / TILE_K);
    const int lane = threadIdx.x % 32, number = threadIdx.x / 32;
    __nv_bfloat16* to = c + (batch * m + row + number / WARPS_N * WARP_TILE + lane / 4) * n + column +
                        number % WARPS_N * WARP_TILE + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const float* s = warp.sums[i][j];
            *reinterpret_cast<__nv_bfloat162*>(to + i * 16 * int64_t(n) + j * 8) = __floats2bfloat162_rn(s[0], s[1]);
            *reinterpret_cast<__nv_bfloat162*>(to + (i * 16 + 8) * int64_t(n) + j * 8) =
                __floats2bfloat162_rn(s[2], s[3]);
        }
}
