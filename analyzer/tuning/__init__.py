"""Choice of kernel configurations: WaveTune's model of measured times, and ranking without a measurement."""
