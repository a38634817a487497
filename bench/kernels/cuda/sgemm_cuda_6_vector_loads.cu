// FP32 GEMM C = alpha * A * B + beta * C, steps 6 to 8: as step 5, with 16-byte accesses and A transposed in
// shared memory, so that a thread's values of a column of A lie side by side. The steps differ in B_LAYOUT:
// 0 (step 6) keeps B's rows, whose 16-byte reads conflict in banks;
// 1 (step 7) puts what the thread columns read at once side by side: one value per access, no conflict;
// 2 (step 8) keeps rows, PADDING elements longer.
#if B_LAYOUT == 1
#define B_SIZE (BK * BN)
#define B_PLACE(k, column, j) (((k) * TN + (j)) * (BN / TN) + (column))
#else
#define B_ROW (BN + PADDING)
#define B_SIZE (BK * B_ROW)
#define B_PLACE(k, column, j) ((k) * B_ROW + (column) * TN + (j))
#endif

extern "C" __global__ void sgemm_vector_loads(int M, int N, int K, float alpha, float* A, float* B,
                                              float beta, float* C) {
    __shared__ float a_tile[BM * BK];
    __shared__ float b_tile[B_SIZE];
    const unsigned tile_row = blockIdx.y;
    const unsigned tile_column = blockIdx.x;
    const int column = threadIdx.x % (BN / TN);
    const int row = threadIdx.x / (BN / TN);

    A += tile_row * BM * K;
    B += tile_column * BN;
    C += tile_row * BM * N + tile_column * BN;

    // What this thread loads: four neighbouring elements of each tile.
    const unsigned a_row = threadIdx.x / (BK / 4);
    const unsigned a_column = threadIdx.x % (BK / 4);
    const unsigned b_row = threadIdx.x / (BN / 4);
    const unsigned b_column = threadIdx.x % (BN / 4);

    float sums[TM * TN] = {0.0f};
    float a[TM] = {0.0f};
    float b[TN] = {0.0f};
    for (unsigned start = 0; start < K; start += BK) {
        float4 four = reinterpret_cast<float4*>(&A[a_row * K + a_column * 4])[0];
        a_tile[(a_column * 4 + 0) * BM + a_row] = four.x;
        a_tile[(a_column * 4 + 1) * BM + a_row] = four.y;
        a_tile[(a_column * 4 + 2) * BM + a_row] = four.z;
        a_tile[(a_column * 4 + 3) * BM + a_row] = four.w;
#if B_LAYOUT == 0
        reinterpret_cast<float4*>(&b_tile[b_row * BN + b_column * 4])[0] =
            reinterpret_cast<float4*>(&B[b_row * N + b_column * 4])[0];
#elif B_LAYOUT == 1
        four = reinterpret_cast<float4*>(&B[b_row * N + b_column * 4])[0];
        b_tile[B_PLACE(b_row, b_column / 2, b_column % 2 * 4 + 0)] = four.x;
        b_tile[B_PLACE(b_row, b_column / 2, b_column % 2 * 4 + 1)] = four.y;
        b_tile[B_PLACE(b_row, b_column / 2, b_column % 2 * 4 + 2)] = four.z;
        b_tile[B_PLACE(b_row, b_column / 2, b_column % 2 * 4 + 3)] = four.w;
#else
        four = reinterpret_cast<float4*>(&B[b_row * N + b_column * 4])[0];
        b_tile[b_row * B_ROW + b_column * 4 + 0] = four.x;
        b_tile[b_row * B_ROW + b_column * 4 + 1] = four.y;
        b_tile[b_row * B_ROW + b_column * 4 + 2] = four.z;
        b_tile[b_row * B_ROW + b_column * 4 + 3] = four.w;
#endif
        __syncthreads();
        A += BK;
        B += BK * N;
        for (unsigned k = 0; k < BK; ++k) {
            for (unsigned i = 0; i < TM; ++i) a[i] = a_tile[k * BM + row * TM + i];
            for (unsigned j = 0; j < TN; ++j) b[j] = b_tile[B_PLACE(k, column, j)];
            for (unsigned i = 0; i < TM; ++i) {
                for (unsigned j = 0; j < TN; ++j) sums[i * TN + j] += a[i] * b[j];
            }
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < TM; ++i) {
        for (unsigned j = 0; j < TN; j += 4) {
            float4* place = reinterpret_cast<float4*>(&C[(row * TM + i) * N + column * TN + j]);
            float4 old = place[0];
            old.x = alpha * sums[i * TN + j] + beta * old.x;
            old.y = alpha * sums[i * TN + j + 1] + beta * old.y;
            old.z = alpha * sums[i * TN + j + 2] + beta * old.z;
            old.w = alpha * sums[i * TN + j + 3] + beta * old.w;
            place[0] = old;
        }
    }
}
