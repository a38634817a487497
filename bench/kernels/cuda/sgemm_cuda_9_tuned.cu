// FP32 GEMM C = alpha * A * B + beta * C, step 9: as step 6, for any tile sizes. THREADS threads load
// their rows of the tiles in turns, and compute the block tile in sub-tiles of 16 x 16 threads.
extern "C" __global__ void __launch_bounds__(THREADS)
    sgemm_tuned(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
    __shared__ float a_tile[BM * BK];
    __shared__ float b_tile[BK * BN];
    constexpr int SUB_M = TM * 16;
    constexpr int SUB_N = TN * 16;
    constexpr int TURNS_M = (BM + SUB_M - 1) / SUB_M;
    constexpr int TURNS_N = (BN + SUB_N - 1) / SUB_N;
    const unsigned tile_row = blockIdx.y;
    const unsigned tile_column = blockIdx.x;
    const int column = threadIdx.x % (SUB_N / TN);
    const int row = threadIdx.x / (SUB_N / TN);

    A += tile_row * BM * K;
    B += tile_column * BN;
    C += tile_row * BM * N + tile_column * BN;

    // What this thread loads: every so many rows four neighbouring elements of each tile.
    const unsigned a_row = threadIdx.x / (BK / 4);
    const unsigned a_column = threadIdx.x % (BK / 4);
    constexpr unsigned A_STRIDE = THREADS * 4 / BK;
    const unsigned b_row = threadIdx.x / (BN / 4);
    const unsigned b_column = threadIdx.x % (BN / 4);
    constexpr unsigned B_STRIDE = THREADS / (BN / 4);

    float sums[TURNS_M * TURNS_N * TM * TN] = {0.0f};
    float a[TM] = {0.0f};
    float b[TN] = {0.0f};
    for (unsigned start = 0; start < K; start += BK) {
        for (unsigned offset = 0; offset + A_STRIDE <= BM; offset += A_STRIDE) {
            const float4 four = reinterpret_cast<const float4*>(&A[(a_row + offset) * K + a_column * 4])[0];
            a_tile[(a_column * 4 + 0) * BM + a_row + offset] = four.x;
            a_tile[(a_column * 4 + 1) * BM + a_row + offset] = four.y;
            a_tile[(a_column * 4 + 2) * BM + a_row + offset] = four.z;
            a_tile[(a_column * 4 + 3) * BM + a_row + offset] = four.w;
        }
        for (unsigned offset = 0; offset + B_STRIDE <= BK; offset += B_STRIDE) {
            reinterpret_cast<float4*>(&b_tile[(b_row + offset) * BN + b_column * 4])[0] =
                reinterpret_cast<const float4*>(&B[(b_row + offset) * N + b_column * 4])[0];
        }
        __syncthreads();
        for (unsigned m = 0; m < TURNS_M; ++m) {
            for (unsigned n = 0; n < TURNS_N; ++n) {
                for (unsigned k = 0; k < BK; ++k) {
                    for (unsigned i = 0; i < TM; ++i) a[i] = a_tile[k * BM + m * SUB_M + row * TM + i];
                    for (unsigned j = 0; j < TN; ++j) b[j] = b_tile[k * BN + n * SUB_N + column * TN + j];
                    for (unsigned i = 0; i < TM; ++i) {
                        for (unsigned j = 0; j < TN; ++j) {
                            sums[(m * TM + i) * (TURNS_N * TN) + n * TN + j] += a[i] * b[j];
                        }
                    }
                }
            }
        }
        __syncthreads();
        A += BK;
        B += BK * N;
    }
    for (unsigned m = 0; m < TURNS_M; ++m) {
        for (unsigned n = 0; n < TURNS_N; ++n) {
            float* sub = C + m * SUB_M * N + n * SUB_N;
            for (unsigned i = 0; i < TM; ++i) {
                for (unsigned j = 0; j < TN; j += 4) {
                    float4* place = reinterpret_cast<float4*>(&sub[(row * TM + i) * N + column * TN + j]);
                    const float* sum = &sums[(m * TM + i) * (TURNS_N * TN) + n * TN + j];
                    float4 old = place[0];
                    old.x = alpha * sum[0] + beta * old.x;
                    old.y = alpha * sum[1] + beta * old.y;
                    old.z = alpha * sum[2] + beta * old.z;
                    old.w = alpha * sum[3] + beta * old.w;
                    place[0] = old;
                }
            }
        }
    }
}
