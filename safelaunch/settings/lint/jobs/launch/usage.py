"""How launchers are called, and what a script waits for that nobody sends."""

from __future__ import annotations

import re
from collections.abc import Iterator

from safelaunch.settings.lint.extract.words import UNKNOWN
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch.launchers import FLAGS, KNOWN, full
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Remark
from safelaunch.settings.lint.judge import versions
from safelaunch.settings.spelling import did_you_mean

# The version of torch with which an option came, where that is later than the oldest that safelaunch takes.
SINCE = {"--log-line-prefix-template": "2.15", "--print-completion": "2.15"}
_OLD = re.compile(r"\S*python[0-9.]*\s+(?:-u\s+)?-m\s+torch\.distributed\.launch\b")
_NUMBERS = {"USR1": "10", "USR2": "12"}
_USER_SIGNAL = re.compile(r"\b(?:SIG)?(USR[12])\b")


def launcher_options(scene: Scene) -> Iterator[Remark]:
    """The launcher does not know an option, or only a later version does. It ends with `unrecognized arguments`.

    How it is concluded: the words between torchrun and the script are held against the options of torch 2.15, in both
    spellings and with what argparse lets one leave out. What comes after the script is the script's own.

    What to do: write the option that the message names, or put options of the script behind it.
    """
    for launch in scene.of("torchrun"):
        for text, word in launch.given:
            head = full(text.partition("=")[0])
            if UNKNOWN in head or "$" in head or head in ("--", "-h", "--help"):
                continue
            since = SINCE.get(head.replace("_", "-"))
            if since and versions.older("torch", scene.installed, since):
                has = versions.label("torch")
                why, remedy = (
                    f"torchrun knows {head} from torch {since} on",
                    f"leave it out, or use {has} {since} or later",
                )
            elif head in KNOWN or since:
                continue
            elif head.replace("_", "-") == "--use-env":
                why, remedy = f"torchrun has no option {head}: it always sets the environment", f"leave {head} out"
            else:
                near = did_you_mean(head, [name for name in KNOWN | FLAGS if name.startswith("--")])
                why, remedy = (
                    f"torchrun has no option {head}",
                    near or "put it behind the script, if it is the script's",
                )
            yield scene.tell("SL247", "error", why, (), remedy, scene.span(word))


def old_launcher(scene: Scene) -> Iterator[Remark]:
    """`python -m torch.distributed.launch` is called, which torchrun has replaced.

    It gives each script --local-rank as an argument (from torch 2.0 on in this spelling, before that --local_rank),
    which scripts of today do not know, and will go.

    How it is concluded: by the words of the command.

    What to do: call torchrun with the same options but --use-env, and read LOCAL_RANK from the environment.
    """
    for launch in scene.of("torch.distributed.launch"):
        line = _OLD.sub("torchrun", scene.source(launch))
        line = re.sub(r"\s*--use[-_]env\b", "", line)
        yield scene.tell(
            "SL248",
            "warning",
            "torch.distributed.launch has been replaced by torchrun, and gives scripts --local-rank as an argument",
            ("deprecated since torch 1.10",),
            f"write {line}",
            scene.span(launch.word),
        )


def missing_signal(scene: Scene) -> Iterator[Remark]:
    """A script waits for a signal before its time limit, and Slurm does not send it, or not to the shell that waits.

    At the time limit comes SIGTERM, and SIGKILL some 30 s later. A handler of SIGUSR1 that is to write a checkpoint
    in time is never called without --signal; and without the `B:` only the tasks of srun get the signal, not the
    batch shell.

    How it is concluded: the batch script has a `trap` for USR1 or USR2; its #SBATCH lines have no --signal with that
    signal, or one without `B:`. Files that send it themselves (kill, scancel) are left alone.

    What to do: `#SBATCH --signal=B:USR1@120`, and srun in the background with a `wait`, for a shell runs its traps only
    between commands.
    """
    if scene.asked is None:
        return
    signal = scene.asked.text("signal")
    for command in scene.job.found.commands:
        if not command.texts or command.texts[0] != "trap" or not command.top:
            continue
        wanted = next((match[1] for text in command.texts[1:] if (match := _USER_SIGNAL.fullmatch(text))), "")
        sent = re.search(rf"(?:kill|scancel)\b[^\n]*{wanted}", scene.job.text)
        if not wanted or sent:
            continue
        if wanted not in signal and _NUMBERS[wanted] != re.split("[:@]", signal.partition("@")[0])[-1]:
            why = f"the trap for {wanted} is never called: no --signal asks Slurm for it"
        elif not signal.startswith(("B:", "BR:", "RB:")):
            why = f"the trap for {wanted} is never called: without B: only the tasks of srun get the signal"
        else:
            continue
        ahead = signal.partition("@")[2] or "120"
        yield scene.tell(
            "SL246",
            "warning",
            why,
            (f"line {scene.asked.line('signal')} asks for {signal}",) if signal else (),
            f"write #SBATCH --signal=B:{wanted}@{ahead}, and start srun in the background with a wait behind it",
            remark.text(scene.job.lines, command.words[0].line, "trap"),
        )
