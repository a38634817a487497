// FP32 GEMM C = alpha * A * B + beta * C, step 4: a BM x BN block tile, TM results per thread down a column.
extern "C" __global__ void sgemm_column_results(int M, int N, int K, float alpha, const float* A,
                                                const float* B, float beta, float* C) {
    __shared__ float a_tile[BM * BK];
    __shared__ float b_tile[BK * BN];
    const unsigned tile_row = blockIdx.y;
    const unsigned tile_column = blockIdx.x;
    const int column = threadIdx.x % BN;
    const int row = threadIdx.x / BN;

    A += tile_row * BM * K;
    B += tile_column * BN;
    C += tile_row * BM * N + tile_column * BN;

    // What this thread loads: one element of each tile.
    const unsigned a_column = threadIdx.x % BK;
    const unsigned a_row = threadIdx.x / BK;
    const unsigned b_column = threadIdx.x % BN;
    const unsigned b_row = threadIdx.x / BN;

    float sums[TM] = {0.0f};
    for (unsigned start = 0; start < K; start += BK) {
        a_tile[a_row * BK + a_column] = A[a_row * K + a_column];
        b_tile[b_row * BN + b_column] = B[b_row * N + b_column];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (unsigned k = 0; k < BK; ++k) {
            const float b = b_tile[k * BN + column];
            for (unsigned i = 0; i < TM; ++i) {
                sums[i] += a_tile[(row * TM + i) * BK + k] * b;
            }
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < TM; ++i) {
        const unsigned place = (row * TM + i) * N + column;
        C[place] = alpha * sums[i] + beta * C[place];
    }
}
