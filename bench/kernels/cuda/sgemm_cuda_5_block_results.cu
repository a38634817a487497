// FP32 GEMM C = alpha * A * B + beta * C, step 5: a BM x BN block tile, TM x TN results per thread.
extern "C" __global__ void __launch_bounds__(BM * BN / (TM * TN), 1)
    sgemm_block_results(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                        float* C) {
    __shared__ float a_tile[BM * BK];
    __shared__ float b_tile[BK * BN];
    constexpr unsigned THREADS = BM * BN / (TM * TN);
    const unsigned tile_row = blockIdx.y;
    const unsigned tile_column = blockIdx.x;
    const int column = threadIdx.x % (BN / TN);
    const int row = threadIdx.x / (BN / TN);

    A += tile_row * BM * K;
    B += tile_column * BN;
    C += tile_row * BM * N + tile_column * BN;

    // What this thread loads: every so many rows an element of each tile.
    const unsigned a_row = threadIdx.x / BK;
    const unsigned a_column = threadIdx.x % BK;
    constexpr unsigned A_STRIDE = THREADS / BK;
    const unsigned b_row = threadIdx.x / BN;
    const unsigned b_column = threadIdx.x % BN;
    constexpr unsigned B_STRIDE = THREADS / BN;

    float sums[TM * TN] = {0.0f};
    float a[TM] = {0.0f};
    float b[TN] = {0.0f};
    for (unsigned start = 0; start < K; start += BK) {
        for (unsigned offset = 0; offset < BM; offset += A_STRIDE) {
            a_tile[(a_row + offset) * BK + a_column] = A[(a_row + offset) * K + a_column];
        }
        for (unsigned offset = 0; offset < BK; offset += B_STRIDE) {
            b_tile[(b_row + offset) * BN + b_column] = B[(b_row + offset) * N + b_column];
        }
        __syncthreads();
        A += BK;
        B += BK * N;
        for (unsigned k = 0; k < BK; ++k) {
            for (unsigned i = 0; i < TM; ++i) a[i] = a_tile[(row * TM + i) * BK + k];
            for (unsigned j = 0; j < TN; ++j) b[j] = b_tile[k * BN + column * TN + j];
            for (unsigned i = 0; i < TM; ++i) {
                for (unsigned j = 0; j < TN; ++j) sums[i * TN + j] += a[i] * b[j];
            }
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < TM; ++i) {
        for (unsigned j = 0; j < TN; ++j) {
            const unsigned place = (row * TM + i) * N + column * TN + j;
            C[place] = alpha * sums[i * TN + j] + beta * C[place];
        }
    }
}
