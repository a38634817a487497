"""The analysis as one value that every output prints and none computes."""
