// FP32 GEMM C = alpha * A * B + beta * C, step 1: one thread per element of C.
// Neighbouring threads take neighbouring rows, so their accesses to A and C do not coalesce.
extern "C" __global__ void sgemm_naive(int M, int N, int K, float alpha, const float* A, const float* B,
                                       float beta, float* C) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < M && column < N) {
        float sum = 0.0f;
        for (int k = 0; k < K; ++k) {
            sum += A[row * K + k] * B[k * N + column];
        }
        C[row * N + column] = alpha * sum + beta * C[row * N + column];
    }
}
