// Kernels that read through the texture unit, so that its pipe and its stalls are met.

extern "C" __global__ void sample_bilinear(cudaTextureObject_t image, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0.0f;
    for (int tap = 0; tap < 16; ++tap)
        sum += tex2D<float>(image, x + 0.25f * tap, y + 0.5f);
    out[y * width + x] = sum;
}
