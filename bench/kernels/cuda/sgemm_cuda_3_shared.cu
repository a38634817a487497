// FP32 GEMM C = alpha * A * B + beta * C, step 3: TILE x TILE tiles of A and B go through shared memory.
extern "C" __global__ void sgemm_shared(int M, int N, int K, float alpha, const float* A, const float* B,
                                        float beta, float* C) {
    __shared__ float a_tile[TILE * TILE];
    __shared__ float b_tile[TILE * TILE];
    const unsigned tile_row = blockIdx.x;
    const unsigned tile_column = blockIdx.y;
    const unsigned column = threadIdx.x % TILE;
    const unsigned row = threadIdx.x / TILE;

    A += tile_row * TILE * K;
    B += tile_column * TILE;
    C += tile_row * TILE * N + tile_column * TILE;

    float sum = 0.0f;
    for (int start = 0; start < K; start += TILE) {
        a_tile[row * TILE + column] = A[row * K + column];
        b_tile[row * TILE + column] = B[row * N + column];
        __syncthreads();
        A += TILE;
        B += TILE * N;
        for (int k = 0; k < TILE; ++k) {
            sum += a_tile[row * TILE + k] * b_tile[k * TILE + column];
        }
        __syncthreads();
    }
    C[row * N + column] = alpha * sum + beta * C[row * N + column];
}
