"""Which environment variables are read while torch is imported: a change of one of them before that counts, later not.

Found by tracing `os.environ` and getenv(3) during `import torch` (2.13 for CPU, 2.15 for CUDA, with numpy 2). What is
read is scattered over static initializers of a dozen libraries, and moves with each release. So whole families count as
read, and what is known to be asked for later is taken out again. Python 3.8 syntax and the standard library only:
workers ask this, too.
"""

from __future__ import annotations

import re

# Threads and their places, linear algebra and its dispatch, torch, numpy, CUDA's libraries, the loader, Python.
_FAMILIES = re.compile(
    r"(?:OMP|GOMP|KMP|MKL|OPENBLAS|GOTO|BLIS|LD|ATEN|DNNL|ONEDNN|MKLDNN|KINETO|NPY|NUMPY|GFORTRAN|INTEL|I_MPI|ACC"
    r"|FX|COMPILE_STROBELIGHT|TORCH|TORCHDYNAMO|TORCHINDUCTOR|TORCHEXPORT|PYTORCH|OPENSSL|MALLOC|NVRTC|LIBNVVM|LLVM"
    r")(?:_|$)"
    r"|CUBLAS(?:LT)?_(?:LOG|DISABLE)|PYTHON|_PYTHON_|GLIBC(?:XX)?_TUNABLES$|CUDA_PREFER_SPINLOCKS_ON_HOST$|HOME$"
    r"|MPI_LOCALNRANKS$|OMPI_COMM_WORLD_LOCAL_SIZE$"
)
# Read when a process group, a compiler or a download first needs them.
_LATER = re.compile(
    r"TORCH_(?:NCCL_|FR_|ELASTIC_|GLOO_|CUDA_ARCH_LIST|EXTENSIONS_DIR|HOME|HUB|MODEL_ZOO)"
    r"|TORCHINDUCTOR_(?:CACHE_DIR|COMPILE_THREADS|MAX_AUTOTUNE)"
    r"|PYTORCH_(?:NVML_BASED_CUDA_CHECK|NO_CUDA_MEMORY_CACHING|KERNEL_CACHE_PATH)"
    r"|PYTHON(?:HASHSEED|UNBUFFERED|BREAKPOINT|ASYNCIODEBUG|IOENCODING|DONTWRITEBYTECODE|PYCACHEPREFIX|NOUSERSITE)$"
)
# With modules beside torch nobody knows what they read; these belong to the start of a rank, or to what comes later.
_NEVER = re.compile(
    r"(?:NCCL|GLOO|TORCH_NCCL|TORCH_FR|SAFELAUNCH|TORCHELASTIC)_|MASTER_(?:ADDR|PORT)$|(?:LOCAL_|GROUP_|ROLE_)?RANK$"
    r"|(?:LOCAL_|GROUP_|ROLE_)?WORLD_SIZE$"
)


def is_read(name: str, beside_torch: bool = False) -> bool:
    """Whether a variable may be read while torch is imported.

    Args:
        name: of the variable.
        beside_torch: other modules are imported, too, of which nobody knows what they read.
    """
    if beside_torch and not _NEVER.match(name):
        return True
    return _FAMILIES.match(name) is not None and _LATER.match(name) is None and _NEVER.match(name) is None
