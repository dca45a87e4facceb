"""Hugging Face's Trainer saves and stops when the scheduler wants the nodes back, on all ranks at the same step.

    trainer = Trainer(..., callbacks=[StopAtStep()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))

The Trainer itself saves at the end of the step, as at any `save_steps`, so that the next start resumes there.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

import safelaunch


class StopAtStep(TrainerCallback):  # type: ignore[misc]
    """Asks once a step, on every rank. Under torchrun the answer is always no."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002  the Trainer's call
        """Have the Trainer save and leave its loop."""
        if safelaunch.should_stop():
            control.should_save = True
            control.should_training_stop = True
        return control
