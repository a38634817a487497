"""Keys in `hwdb/gpu` of the GPUs that teach, by the names that the data sets give them."""

PIPEWEAVE = {
    "A100-80GB SXM": "a100-80gb-sxm",
    "A40": "a40",
    "H20": "h20",
    "H800": "h800-sxm",
    "L20": "l20",
    "RTX 6000 Ada": "rtx-6000-ada",
}
AICONFIGURATOR = {
    "a100_sxm": "a100-80gb-sxm",
    "l40s": "l40s",
    "h100_sxm": "h100-sxm",
    "b200_sxm": "b200",
    "gb200": "gb200",
}
NEUSIGHT = {
    "NVIDIA A100-PCIE-40GB": "a100-40gb-pcie",
    "Tesla P100-PCIE-16GB": "p100-pcie",
    "Tesla P4": "p4",
    "Tesla T4": "t4",
    "Tesla V100-PCIE-32GB": "v100-pcie",
}
