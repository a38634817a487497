"""Names that the CUDA and HIP runtimes give the GPUs of the database, as `torch.cuda.get_device_name()` does.

Inference engines put the name into the names of their tuning files, with spaces as underscores:
`NVIDIA A100-SXM4-80GB` becomes `NVIDIA_A100-SXM4-80GB`. The names are those of vLLM's and SGLang's files and
of tables of measurements; for other GPUs the user gives the name.
"""

from collections.abc import Mapping

from analyzer.hardware.gpu_database import find_gpu_paths, load_gpu
from analyzer.text.errors import HardwareError, UsageError

_NAMES: Mapping[str, str] = {
    "a10": "NVIDIA A10",
    "a100-40gb-pcie": "NVIDIA A100-PCIE-40GB",
    "a100-40gb-sxm": "NVIDIA A100-SXM4-40GB",
    "a100-80gb-pcie": "NVIDIA A100 80GB PCIe",
    "a100-80gb-sxm": "NVIDIA A100-SXM4-80GB",
    "a30": "NVIDIA A30",
    "a40": "NVIDIA A40",
    "b200": "NVIDIA B200",
    "b300": "NVIDIA B300 SXM6 AC",
    "gb200": "NVIDIA GB200",
    "gb300": "NVIDIA GB300",
    "gh200": "NVIDIA GH200 480GB",
    "h100-pcie": "NVIDIA H100 PCIe",
    "h100-sxm": "NVIDIA H100 80GB HBM3",
    "h20": "NVIDIA H20",
    "h200-sxm": "NVIDIA H200",
    "h800-sxm": "NVIDIA H800",
    "l20": "NVIDIA L20",
    "l4": "NVIDIA L4",
    "l40": "NVIDIA L40",
    "l40s": "NVIDIA L40S",
    "mi250": "AMD Instinct MI250",
    "mi300x": "AMD Instinct MI300X",
    "p100-pcie": "Tesla P100-PCIE-16GB",
    "p100-sxm2": "Tesla P100-SXM2-16GB",
    "rtx-6000-ada": "NVIDIA RTX 6000 Ada Generation",
    "rtx-pro-6000-blackwell-server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "t4": "Tesla T4",
    "titan-rtx": "NVIDIA TITAN RTX",
    "titan-v": "NVIDIA TITAN V",
    "v100-pcie": "Tesla V100-PCIE-16GB",
    "v100-sxm2": "Tesla V100-SXM2-16GB",
}
_WORKSTATION_PREFIX = "rtx-a"  # RTX A6000; all other keys that begin with `rtx-` and a digit are GeForce
_UPPER_CASE_SUFFIX = {"ti": "Ti", "super": "SUPER", "laptop": "Laptop GPU", "d": "D", "12gb": ""}
_QUADROS = {"rtx-5000": "Quadro RTX 5000", "rtx-8000": "Quadro RTX 8000"}


def find_device_name(gpu: str) -> str:
    """Return the runtime's name of a GPU of the database, such as `NVIDIA GeForce RTX 4090`.

    gpu: a name or alias. Raises HardwareError for an unknown GPU and UsageError for one without a known name.
    """
    key = load_gpu(gpu).key
    name = _NAMES.get(key) or _QUADROS.get(key) or _spell_rtx(key)
    if not name:
        raise UsageError(
            f"the name that the runtime gives {gpu} is not known",
            hint='give --device-name "...", as torch.cuda.get_device_name() prints it',
        )
    return name


def find_gpu_of_device(name: str) -> str | None:
    """Return the key of the GPU that a runtime calls so (spaces or underscores); None for an unknown one.

    GPUs sold with several memory sizes are told apart by the name alone, as the runtime does.
    """
    wanted = name.replace(" ", "_").casefold()
    for key in find_gpu_paths():
        known = _NAMES.get(key) or _QUADROS.get(key) or _spell_rtx(key)
        if known.replace(" ", "_").casefold() == wanted:
            return key
    try:
        return load_gpu(name.replace("_", " ")).key
    except HardwareError:
        return None


def _spell_rtx(key: str) -> str:
    """Return `NVIDIA GeForce RTX 4070 Ti SUPER` for `rtx-4070-ti-super`; "" for what is no RTX."""
    words = key.split("-")
    if words[0] != "rtx" or len(words) < 2 or not any(character.isdigit() for character in words[1]):
        return ""
    if key.startswith(_WORKSTATION_PREFIX):
        return " ".join(("NVIDIA RTX", words[1].upper()))
    suffixes = [_UPPER_CASE_SUFFIX.get(word, word) for word in words[2:]]
    return " ".join(word for word in ("NVIDIA GeForce RTX", words[1], *suffixes) if word)
