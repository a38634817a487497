// Rows of any length, read `group` floats at a time from the first place in memory on that is a multiple of so
// many: what comes before and behind is loaded one by one. Trips hang on the row's number modulo `group`, and so
// on divisions that round.
template <int group> __device__ float row_sum(const float* in, int length) {
    const unsigned int start = blockIdx.x * static_cast<unsigned int>(length);
    const float* row = in + start;
    const int before = (group - start % group) % group, groups = (length - before) / group;
    float sum = 0.0f;
    if (threadIdx.x < before) sum = row[threadIdx.x];
#pragma unroll 1
    for (int i = threadIdx.x; i < groups; i += blockDim.x)
#pragma unroll
        for (int j = 0; j < group; ++j) sum = sum * sum + row[before + i * group + j];
#pragma unroll 1
    for (int i = before + groups * group + threadIdx.x; i < length; i += blockDim.x) sum += row[i];
    return sum;
}

extern "C" __global__ void thirds(const float* in, float* out, int length) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = row_sum<3>(in, length);
}

extern "C" __global__ void twelfths(const float* in, float* out, int length) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = row_sum<12>(in, length);
}

extern "C" __global__ void parts_of_1000(const float* in, float* out, int length) {
    const int trips = blockIdx.x % 1000 / 100 + 1;  // comes round after too many CTAs
    float sum = 0.0f;
#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) sum = sum * sum + in[threadIdx.x + trip * length];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
