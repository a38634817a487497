// Incoherent dedispersion with tunable block and tile sizes, written anew from its description.
//
// Each thread sums, for TILE_X samples and TILE_Y dispersion measures, one byte of every channel, taken as
// many samples later as the channel is delayed at that measure.  Unrolling is left to the compiler.
//
// BLOCK_X, BLOCK_Y, TILE_X, TILE_Y: sizes; STRIDE_X, STRIDE_Y: whether a thread's samples and measures lie a
// block apart (1) or side by side (0).

constexpr int kChannels = 1536;
constexpr int kSamples = 25000;          // results per measure
constexpr int kSamplesPerChannel = 25650;
constexpr int kMeasures = 2048;
constexpr float kFirstMeasure = 0.0f;
constexpr float kMeasureStep = 0.02f;

extern "C" __global__ void dedispersion(const unsigned char *input, float *output, const float *shifts) {
#if STRIDE_X
  const int first_sample = blockIdx.x * BLOCK_X * TILE_X + threadIdx.x;
  constexpr int kSampleStep = BLOCK_X;
#else
  const int first_sample = (blockIdx.x * BLOCK_X + threadIdx.x) * TILE_X;
  constexpr int kSampleStep = 1;
#endif
#if STRIDE_Y
  const int first_measure = blockIdx.y * BLOCK_Y * TILE_Y + threadIdx.y;
  constexpr int kMeasureStepOfTile = BLOCK_Y;
#else
  const int first_measure = (blockIdx.y * BLOCK_Y + threadIdx.y) * TILE_Y;
  constexpr int kMeasureStepOfTile = 1;
#endif
  for (int u = 0; u < TILE_X; ++u) {
    const int sample = first_sample + u * kSampleStep;
    for (int v = 0; v < TILE_Y; ++v) {
      const int measure = first_measure + v * kMeasureStepOfTile;
      if (sample < kSamples && measure < kMeasures) {
        const float dm = kFirstMeasure + measure * kMeasureStep;
        float sum = 0.0f;
        for (int channel = 0; channel < kChannels; ++channel) {
          const unsigned int shift = static_cast<unsigned int>(dm * shifts[channel]);
          sum += input[channel * kSamplesPerChannel + sample + shift];
        }
        output[measure * kSamples + sample] = sum;
      }
    }
  }
}
