// Trips come round again along the grid: CTAs at both ends of it take as many, those between take more.
extern "C" __global__ void stripes(const float* table, float* sums, int least) {
    const int place = blockIdx.x * blockIdx.x + threadIdx.x;
    const int trips = (blockIdx.x & 7) + least;
    float sum = 0.0f;
#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) sum = sum * sum + table[place + trip * 4096];
    sums[place] = sum;
}
