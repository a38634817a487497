// Divisions outside loops: indices of elementwise kernels. Then a multiplication and a shift by precomputed numbers.
struct Divisor { unsigned multiplier, shift, value; };
__device__ __forceinline__ unsigned divide(unsigned n, Divisor d) { return (__umulhi(n, d.multiplier) + n) >> d.shift; }

// Scales of groups of rows.
extern "C" __global__ void faulty_groups(const signed char* __restrict__ q, const float* __restrict__ s, float* y, int n, int per, int groups) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = q[i] * s[(i / per) % groups];
}
extern "C" __global__ void mended_groups(const signed char* __restrict__ q, const float* __restrict__ s, float* y, int n, Divisor per, Divisor groups) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned row = divide(i, per), g = row - divide(row, groups) * groups.value;
    y[i] = q[i] * s[g];
}
// Channels last: three divisions.
extern "C" __global__ void faulty_permute(const short* __restrict__ x, short* y, unsigned n, unsigned w, unsigned h, unsigned c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned col = i % w, rest = i / w, row = rest % h, image = rest / h, channel = image % c;
    y[i] = x[i] + (col ^ row) * channel;
}
extern "C" __global__ void mended_permute(const short* __restrict__ x, short* y, unsigned n, Divisor w, Divisor h, Divisor c) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned rest = divide(i, w), col = i - rest * w.value, image = divide(rest, h), row = rest - image * h.value;
    unsigned channel = image - divide(image, c) * c.value;
    y[i] = x[i] + (col ^ row) * channel;
}
