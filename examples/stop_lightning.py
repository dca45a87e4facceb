"""Lightning saves and stops when the scheduler wants the nodes back, on all ranks at the same batch.

    trainer = Trainer(..., callbacks=[StopAtBatch("checkpoints/stopped.ckpt")])
    trainer.fit(model, data, ckpt_path="checkpoints/stopped.ckpt" if os.path.exists(...) else None)

Lightning has handlers of its own for SIGUSR1 and SIGTERM under Slurm; what it catches is its own. `plugins=
[SLURMEnvironment(auto_requeue=False)]` leaves SIGUSR1 to this callback.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback

import safelaunch


class StopAtBatch(Callback):  # type: ignore[misc]
    """Asks once a batch, on every rank. Under torchrun the answer is always no.

    Args:
        path: of the checkpoint.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Save, which all ranks do together, and have the trainer leave its loop."""
        if safelaunch.should_stop() and not trainer.should_stop:
            trainer.save_checkpoint(self._path)
            trainer.should_stop = True
