"""How launchers are called, and what a script waits for that nobody sends."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from itertools import pairwise

from safelaunch.settings.lint.extract.words import UNKNOWN
from safelaunch.settings.lint.jobs import remark
from safelaunch.settings.lint.jobs.launch.launchers import LONG_DASH, Launch
from safelaunch.settings.lint.jobs.launch.options import OF, Options
from safelaunch.settings.lint.jobs.launch.scene import Scene
from safelaunch.settings.lint.jobs.remark import Edit, Remark, Span
from safelaunch.settings.lint.judge import versions
from safelaunch.settings.spelling import did_you_mean

# The version of torch with which an option came, where that is later than the oldest that safelaunch takes.
SINCE = {"--log-line-prefix-template": "2.15", "--print-completion": "2.15"}
_OLD = re.compile(r"\S*python[0-9.]*\s+(?:-u\s+)?-m\s+torch\.distributed\.launch\b")
_PYTHON = re.compile(r"python[0-9.]*")
_FORMS = {"--rdzv-conf": "KEY=VALUE, such as timeout=900"}
_BLANK_BEHIND = re.compile(r"(?:^|[ \t])(\\)[ \t]+$")
_GOES_ON = re.compile(
    r"[ \t]*(?:--?[A-Za-z]|[A-Z_][A-Z0-9_]*=|torchrun\b|srun\b|mpirun\b|accelerate\b|deepspeed\b|python[0-9.]*\s)"
)
_NUMBERS = {"USR1": "10", "USR2": "12"}
_USER_SIGNAL = re.compile(r"\b(?:SIG)?(USR[12])\b")


def launcher_options(scene: Scene) -> Iterator[Remark]:
    """The launcher does not know an option, or only a later version does. It ends with `unrecognized arguments`.

    The same is told of `torchrun python train.py`: a launcher starts Python itself, and looks for a script whose name
    is `python`. A long dash, into which chats and word processors turn `--`, begins no option: it ends them.

    How it is concluded: the words between the launcher and the script are held against its options. These are of
    torchrun of torch 2.15, of `accelerate launch` 0.12 to 1.15, or of `deepspeed` 0.9 to 0.19. Their other spellings
    count, and what argparse lets one leave out. What comes after the script is the script's own. A script that is
    called python is one only with --no-python.

    What to do: write the option that the message names, or put options of the script behind it.
    """
    yield from _no_script(scene)
    yield from _long_dash(scene)
    for launch in scene.of("torchrun", "accelerate", "deepspeed"):
        own = OF[launch.name]
        for text, word in launch.given:
            head = own.full(text.partition("=")[0])
            if UNKNOWN in head or "$" in head or head in ("--", "-h", "--help") or not head.startswith("--"):
                continue
            since = SINCE.get(head.replace("_", "-")) if launch.name == "torchrun" else None
            if since and versions.older("torch", scene.installed, since):
                has = versions.label("torch")
                why, remedy = (
                    f"torchrun knows {head} from torch {since} on",
                    f"leave it out, or use {has} {since} or later",
                )
            elif head in own.names or since:
                continue
            else:
                why, remedy = _unknown(launch, own, head)
            yield scene.tell("SL247", "error", why, (f"held against {own.versions}",), remedy, scene.span(word))


def _unknown(launch: Launch, own: Options, head: str) -> tuple[str, str]:
    name = "accelerate launch" if launch.name == "accelerate" else launch.name
    dashed = head.replace("_", "-")
    if dashed == "--use-env":
        return f"{name} has no option {head}: it always sets the environment", f"leave {head} out"
    meant = own.like.get(dashed) or next((each for each in own.names if each.replace("_", "-") == dashed), "")
    if meant:
        return f"{name} has no option {head}", f"write {meant}"
    near = did_you_mean(head, [each for each in own.names if each.startswith("--")])
    form = next((text for option, text in _FORMS.items() if option in near.replace("_", "-")), "")
    near += f" It takes {form}" if form else ""
    return f"{name} has no option {head}", near or "put it behind the script, if it is the script's"


def _no_script(scene: Scene) -> Iterator[Remark]:
    for launch in scene.launches:
        word = launch.script
        if word is None or not _PYTHON.fullmatch(word.raw) or {"no-python", "m", "module"} & set(launch.options):
            continue
        yield scene.tell(
            "SL247",
            "error",
            f"{launch.name} starts Python itself, and looks for a script that is called {word.raw}",
            (),
            f"leave out {word.raw}, or add --no-python",
            scene.span(word),
        )


def _long_dash(scene: Scene) -> Iterator[Remark]:
    """Word processors and chats turn `--` into one long dash, which ends the options of a launcher."""
    for launch in scene.launches:
        word = launch.long_dash
        match = LONG_DASH.match(word.raw) if word is not None else None
        if word is None or match is None:
            continue
        head = word.raw.partition("=")[0]
        meant = "--" + head[match.end() :]
        takes = (
            f"{launch.name} takes {head} for its script"
            if word is launch.script
            else f"srun takes {head} for a program"
        )
        yield scene.tell(
            "SL247",
            "error",
            f"{takes}: a long dash is not two short ones",
            ("what stands behind it is taken for its arguments",),
            f"write {meant}",
            scene.span(word),
        )


def old_launcher(scene: Scene) -> Iterator[Remark]:
    """`python -m torch.distributed.launch` is called, which torchrun has replaced.

    It gives each script --local-rank as an argument (from torch 2.0 on in this spelling, before that --local_rank),
    which scripts of today do not know, and will go.

    How it is concluded: by the words of the command.

    What to do: call torchrun with the same options but --use-env, and read LOCAL_RANK from the environment.
    """
    for launch in scene.of("torch.distributed.launch"):
        whole = launch.command.words[-1].line == launch.word.line
        line = _OLD.sub("torchrun", scene.source(launch)) if whole else ""
        if "torchrun" in line:
            remedy = "write " + re.sub(r"\s*--use[-_]env\b", "", line)
        else:
            remedy = f"write torchrun in place of {launch.word.raw} -m torch.distributed.launch"
            remedy += ", without --use-env" if "use-env" in launch.options else ""
        yield scene.tell(
            "SL248",
            "warning",
            "torch.distributed.launch has been replaced by torchrun, and gives scripts --local-rank as an argument",
            ("deprecated since torch 1.10",),
            remedy,
            scene.span(launch.word),
        )


def broken_line(scene: Scene) -> Iterator[Remark]:
    """A command ends too early: behind the backslash at the end of its line stands a blank.

    The shell then takes the blank for a word, and what stands on the next line for another command. A launcher does not
    get its options, a program not its variables.

    How it is concluded: in a shell script, a line that is no comment ends with a backslash and blanks, and the next one
    begins with an option, an assignment or a launcher.

    What to do: take the blanks away; `--fix` does.
    """
    if scene.job.kind != "shell" or "\\ " not in scene.job.text.replace("\t", " "):
        return
    lines = scene.job.lines
    for number, (text, below) in enumerate(pairwise(lines), 1):
        match = _BLANK_BEHIND.search(text)
        if match is None or text.lstrip().startswith("#") or not _GOES_ON.match(below):
            continue
        span = Span(number, match.start(1), len(text))
        one = scene.tell(
            "SL252",
            "error",
            "the command ends here: a blank stands behind the backslash",
            (f"line {number + 1} is a command of its own for the shell",),
            "take away the blanks at the end of the line",
            span,
        )
        yield dataclasses.replace(one, edits=(Edit(Span(number, match.start(1) + 1, len(text)), ""),))


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
