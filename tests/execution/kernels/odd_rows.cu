// Rows of any length, four words at a time from the first aligned place on: what comes before and behind that is
// loaded word by word. Trips hang on the row's number modulo 4.
__device__ float row_sum(const float* row, int length) {
    const int before = (16 - static_cast<int>(reinterpret_cast<unsigned long long>(row) % 16)) % 16 / 4;
    const int wide = (length - before) / 4;
    float sum = 0.0f;
    if (threadIdx.x < before) sum = row[threadIdx.x];
#pragma unroll 1
    for (int i = threadIdx.x; i < wide; i += blockDim.x) {
        const float4 four = reinterpret_cast<const float4*>(row + before)[i];
        sum += four.x * four.y + four.z * four.w;
    }
#pragma unroll 1
    for (int i = before + 4 * wide + threadIdx.x; i < length; i += blockDim.x) sum += row[i];
    return sum;
}

extern "C" __global__ void odd_rows(const float* in, float* out, int length) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = row_sum(in + (long long)blockIdx.x * length, length);
}

// The same, of images: rows lie along y, channels along x.
extern "C" __global__ void odd_images(const float* in, float* out, int length) {
    const int row = blockIdx.y * gridDim.x + blockIdx.x;
    out[row * blockDim.x + threadIdx.x] = row_sum(in + (long long)row * length, length);
}

// Trips come round again after too many CTAs to look at each of them.
extern "C" __global__ void wide_stripes(const float* table, float* sums, int least) {
    const int trips = (blockIdx.x & 127) + least;
    float sum = 0.0f;
#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) sum = sum * sum + table[threadIdx.x + trip * 4096];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
