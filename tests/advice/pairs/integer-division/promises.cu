// Divisions outside loops: indices of elementwise kernels. Then a multiplication and a shift by precomputed numbers.
__device__ __forceinline__ unsigned divide(unsigned n, unsigned inverse, unsigned shift) { return (__umulhi(n, inverse) + n) >> shift; }

// Scales of groups of rows.
extern "C" __global__ void faulty_groups(const signed char* __restrict__ q, const float* __restrict__ s, float* y, int n, int per, int groups) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = q[i] * s[(i / per) % groups];
}
extern "C" __global__ void mended_groups(const signed char* __restrict__ q, const float* __restrict__ s, float* y, int n, unsigned per, unsigned per_inverse, unsigned per_shift, unsigned groups, unsigned groups_inverse, unsigned groups_shift) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned row = divide(i, per_inverse, per_shift), g = row - divide(row, groups_inverse, groups_shift) * groups;
    y[i] = q[i] * s[g];
}
// Channels last: three divisions.
extern "C" __global__ void faulty_permute(const short* __restrict__ x, short* y, unsigned n, unsigned w, unsigned h, unsigned c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned col = i % w, rest = i / w, row = rest % h, image = rest / h, channel = image % c;
    y[i] = x[i] + (col ^ row) * channel;
}
extern "C" __global__ void mended_permute(const short* __restrict__ x, short* y, unsigned n, unsigned w, unsigned w_inverse, unsigned w_shift, unsigned h, unsigned h_inverse, unsigned h_shift, unsigned c, unsigned c_inverse, unsigned c_shift) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned rest = divide(i, w_inverse, w_shift), col = i - rest * w, image = divide(rest, h_inverse, h_shift), row = rest - image * h;
    unsigned channel = image - divide(image, c_inverse, c_shift) * c;
    y[i] = x[i] + (col ^ row) * channel;
}
