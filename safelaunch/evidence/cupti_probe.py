"""A program: whether CUPTI can be used here, by which torch's profiler records kernels. It may crash, or wait for a
driver: that is what it is for. Arguments: the paths of libcuda and libcupti, the second perhaps empty.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

KERNELS = 10  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL


def main(cuda: str, cupti: str) -> None:
    """Prints a line of JSON: a text, empty where it can be used. Nothing is made on a GPU: no context, no memory."""
    code = ctypes.CDLL(cuda).cuInit(0)
    if code or not cupti:
        _say(f"cuInit says {code}" if code else "")
    library = ctypes.CDLL(cupti)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
    code = library.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), callback, None)
    code = code or library.cuptiActivityEnable(KERNELS)
    text = ctypes.c_char_p()
    if code:
        library.cuptiGetResultString(code, ctypes.byref(text))
    _say(f"CUPTI says {(text.value or b'').decode('utf-8', 'replace') or code}" if code else "")


def _say(reason: str) -> None:
    print(json.dumps(reason), flush=True)
    os._exit(0)  # what CUPTI does at an exit is no answer


if __name__ == "__main__":
    main(*sys.argv[1:3])
