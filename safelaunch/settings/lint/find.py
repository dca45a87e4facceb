"""Find the torch that a Python would import and the NCCL that this torch would load, without loading either."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from safelaunch.settings.lint.elf import Elf, Loads
from safelaunch.settings.lint.installed import Library

NCCL = "libnccl.so.2"
# Where the loader looks last: ld.so(8), and the folders that distributions and CUDA's packages add to ld.so.conf.
SYSTEM = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
          "/usr/local/lib", "/usr/local/cuda/lib64", "/lib64", "/usr/lib64", "/lib", "/usr/lib")  # fmt: skip
# Libraries of torch itself in torch/lib; old wheels have those of CUDA there too, which are large and not asked about.
OWN = re.compile(r"lib(torch|c10|caffe2|shm|gomp|omp|iomp|gloo|tensorpipe|nccl)[\w.+-]*\.so(\.[\d.]+)?")
_VERSION = re.compile(r"^__version__(?:\s*:[^=]+)?\s*=\s*['\"]([^'\"+]+)", re.M)
_CUDA = re.compile(r"^cuda(?:\s*:[^=]+)?\s*=\s*['\"]", re.M)
_OTHER_GPU = re.compile(r"^(?:hip|rocm|xpu)(?:\s*:[^=]+)?\s*=\s*['\"]", re.M)
_NCCL_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)")


def torch(path: Sequence[str] | None = None) -> Library | None:
    """The torch that a Python would import, from the text of torch/version.py.

    Args:
        path: the `sys.path` of that Python; None for this one, with its hooks for editable installs.
    """
    try:
        if path is None:
            spec = importlib.util.find_spec("torch")
        else:
            spec = importlib.machinery.PathFinder.find_spec("torch", list(path))
    except (ImportError, ValueError, OSError):
        return None
    # A folder named torch in the working directory has no origin, and is none.
    if spec is None or not spec.origin:
        return None
    folder = os.path.dirname(os.path.abspath(spec.origin))
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError:  # a zip, or a folder of somebody else's that is called so
        return None
    version = _VERSION.search(text)
    if version is None:
        return None
    return Library(version[1], folder, cuda=bool(_CUDA.search(text)), other_gpu=bool(_OTHER_GPU.search(text)))


def libraries(torch: Library) -> tuple[str, ...]:
    """The files of torch's own libraries, links followed, each once; nothing where there are none."""
    folder = os.path.join(torch.path, "lib")
    try:
        found = {os.path.realpath(os.path.join(folder, name)) for name in os.listdir(folder) if OWN.fullmatch(name)}
    except OSError:
        return ()
    return tuple(sorted(found))


def nccl(torch: Library, environ: Mapping[str, str]) -> Library | None:
    """The NCCL that a torch would load: None for a torch without CUDA, or where none is found.

    The loader takes what is preloaded, then looks into the RPATH of who asks (pip's torch has one, so LD_LIBRARY_PATH
    does not act on it), then into LD_LIBRARY_PATH, the RUNPATH, and the system's folders (ld.so(8)). Last, torch itself
    loads what pip put beside it (torch/__init__.py, _preload_cuda_deps).

    Args:
        torch: the torch of the ranks.
        environ: of the ranks.
    """
    if not torch.cuda:
        return None
    asking = next((file for file in libraries(torch) if os.path.basename(file).startswith("libtorch_cuda.so")), "")
    try:
        with Elf(asking) as elf:
            loads = elf.loads()
            if asking and not any(name.startswith("libnccl.so") for name in loads.needed):
                version = elf.search(_NCCL_VERSION)  # built in
                return Library(version, asking) if version else None
    except (OSError, ValueError):
        loads = Loads()
    for candidate in _candidates(torch, environ, loads, os.path.dirname(asking)):
        if os.path.isfile(candidate):
            return Library(_nccl_version(candidate), os.path.realpath(candidate))
    return None


def _candidates(torch: Library, environ: Mapping[str, str], loads: Loads, origin: str) -> Iterator[str]:
    preloaded = re.split(r"[:\s]+", environ.get("LD_PRELOAD", ""))
    yield from (path for path in preloaded if os.path.basename(path).startswith("libnccl.so"))
    of_environ = [folder for folder in re.split("[:;]", environ.get("LD_LIBRARY_PATH", "")) if folder]
    rpath = () if loads.runpath else loads.rpath  # ld.so(8): DT_RPATH counts only without DT_RUNPATH
    beside = os.path.join(os.path.dirname(torch.path), "nvidia", "nccl", "lib")
    for folder in (*rpath, *of_environ, *loads.runpath, *SYSTEM, beside, os.path.join(torch.path, "lib")):
        yield os.path.join(folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin), NCCL)


def _nccl_version(file: str) -> str:
    try:
        with Elf(file) as elf:
            found = elf.search(_NCCL_VERSION)
    except (OSError, ValueError):
        found = ""
    in_name = re.search(r"\.so\.(\d+\.\d+\.\d+)$", os.path.realpath(file))
    return found or (in_name[1] if in_name else "")
