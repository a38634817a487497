"""Names that the CUDA and HIP runtimes give the GPUs of the database, as `torch.cuda.get_device_name()` does.

Inference engines put the name into the names of their tuning files, with spaces as underscores:
`NVIDIA A100-SXM4-80GB` becomes `NVIDIA_A100-SXM4-80GB`. The names are those of vLLM's and SGLang's files and
of tables of measurements; for other GPUs the user gives the name.
"""

from analyzer.hardware.gpu_database import find_keys_by, load_gpu
from analyzer.text.errors import HardwareError, UsageError


def find_device_name(gpu: str) -> str:
    """Return the runtime's name of a GPU of the database, such as `NVIDIA GeForce RTX 4090`.

    gpu: a name or alias. Raises HardwareError for an unknown GPU and UsageError for one without a known name.
    """
    name = load_gpu(gpu).file.device_name
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
    for known, key in find_keys_by("device_name").items():
        if known.replace(" ", "_").casefold() == wanted:
            return key
    try:
        return load_gpu(name.replace("_", " ")).key
    except HardwareError:
        return None
