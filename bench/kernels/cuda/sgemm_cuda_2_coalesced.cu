// FP32 GEMM C = alpha * A * B + beta * C, step 2: one thread per element of C.
// Neighbouring threads of a CTA's TILE x TILE elements take neighbouring columns.
extern "C" __global__ void sgemm_coalesced(int M, int N, int K, float alpha, const float* A, const float* B,
                                           float beta, float* C) {
    const int row = blockIdx.x * TILE + threadIdx.x / TILE;
    const int column = blockIdx.y * TILE + threadIdx.x % TILE;
    if (row < M && column < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum += A[row * K + k] * B[k * N + column];
        }
        C[row * N + column] = alpha * sum + beta * C[row * N + column];
    }
}
