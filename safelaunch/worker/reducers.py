"""Runs in: workers. Which models DistributedDataParallel reduces here, and which of their parameters have no gradient.

Only Python attributes are read (`parameter.grad is None`): nothing waits for a GPU, and nothing is kept alive.
"""

from __future__ import annotations

import functools
import itertools
import re
import weakref
from typing import Any, Dict, Iterator, List, Optional

MOST = 2000  # names that are kept of one model
_MODELS: Any = weakref.WeakKeyDictionary()  # to the order in which they were made
_ORDER = itertools.count()

# torch/csrc/distributed/c10d/reducer.cpp, ensure_prior_reduction_finished.
PRIOR = "Expected to have finished reduction in the prior iteration"
INDICES = re.compile(r"Parameter indices which did not receive grad for rank \d+: ([\d ]+)")


def watch_models(module: Any) -> None:
    """Remember each `DistributedDataParallel` of the rank, in the order in which they are made."""
    kind = module.DistributedDataParallel
    init = kind.__init__

    @functools.wraps(init)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        try:
            _MODELS[self] = next(_ORDER)
        except Exception:
            pass

    kind.__init__ = made


def look(error: Optional[BaseException] = None) -> List[Dict[str, Any]]:
    """All of them, in the shape of `model.Reducer`. With an exception of DDP about unused parameters, the model that
    raised it comes with the parameters that the exception means."""
    guilty, indices = _complaint(error)
    return [_described(model, model is guilty, indices) for model in _models()]


def _models() -> List[Any]:
    return [model for model, _ in sorted(_MODELS.items(), key=lambda item: item[1])]


def _described(model: Any, guilty: bool, indices: List[int]) -> Dict[str, Any]:
    parameters = list(_parameters(model))
    without = [name for name, parameter in parameters if parameter.grad is None]
    if guilty and indices:
        names = [name for name, _ in parameters]
        without = [names[index] for index in indices if index < len(names)]
    return {
        "model": type(model.module).__name__,
        "parameters": len(parameters),
        "without": without[:MOST],
        "tolerant": bool(getattr(model, "find_unused_parameters", False) or getattr(model, "static_graph", False)),
        "raised": guilty,
    }


def _parameters(model: Any) -> Iterator[Any]:
    """Name and parameter in the order of the reducer's indices (torch: `_build_params_for_reducer`)."""
    ignored = getattr(model, "parameters_to_ignore", ())
    seen = set()
    for prefix, module in model.module.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and "%s.%s" % (prefix, name) not in ignored and parameter not in seen:
                seen.add(parameter)
                yield (prefix + "." + name if prefix else name), parameter


def _complaint(error: Optional[BaseException]) -> Any:
    """The model whose reducer complained, and the indices that it told."""
    current = error
    for _ in range(10):
        if current is None:
            break
        said = str(current)
        if PRIOR in said:
            match = INDICES.search(said)
            return _raiser(current), [int(index) for index in match.group(1).split()] if match else []
        current = current.__cause__ or current.__context__
    return None, []


def _raiser(error: BaseException) -> Any:
    """The model whose method raised: it is `self` of the innermost frame that has one of them."""
    found = None
    trace = error.__traceback__
    while trace is not None:
        candidate = trace.tb_frame.f_locals.get("self")
        if any(candidate is model for model in list(_MODELS)):
            found = candidate
        trace = trace.tb_next
    models = list(_MODELS)
    return found if found is not None or len(models) != 1 else models[0]
