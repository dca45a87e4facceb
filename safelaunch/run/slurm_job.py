"""What a run tells Slurm at its end: the job's comment, and a requeue that leaves a node out. By scontrol, with a
deadline, from one node."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

from safelaunch.bad_nodes import same
from safelaunch.schedulers.host_list import spelled_out

ANSWER_S = 5.0
COMMENT = 200  # characters: it is a column of squeue
OURS = "safelaunch: "
MOST_RESTARTS = 16  # a job that comes back so often is not helped by another node
# What Slurm sends to the job that it requeues must not end this before the second command.
REQUEUE = 'trap "" TERM; scontrol requeue "$1" || exit 9; [ -z "$2" ] || scontrol update JobId="$1" ExcNodeList="$2"'
REFUSED = 9


class SlurmError(Exception):
    """Slurm does not do what it was asked for; the message says why."""


class RequeuedError(SlurmError):
    """Another node has been quicker."""


def job_id(environ: Mapping[str, str]) -> str:
    """How scontrol calls this job; an array's own number would mean all of its tasks. Empty outside of Slurm."""
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    found = f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID", "")
    return found if re.fullmatch(r"[\w+]{1,60}", found) else ""


def comment(environ: Mapping[str, str], text: str) -> None:
    """Put a line into the job's comment, behind what its owner has written there.

    Raises:
        SlurmError: it is not there.
    """
    job = job_id(environ)
    before = _shown(job).get("Comment", "").partition(OURS)[0].rstrip(" |")
    said = OURS + " ".join(text.split()).replace('"', "'")
    _scontrol("update", f"JobId={job}", f"Comment={f'{before} | ' if before else ''}{said[:COMMENT]}")


def requeue(environ: Mapping[str, str], hosts: Sequence[str]) -> tuple[str, ...]:
    """Requeue this job without some nodes; returns their names in Slurm. Its processes are ended soon after that.

    Args:
        environ: of safelaunch.
        hosts: names of the nodes, as their programs see them.

    Raises:
        SlurmError: the job is not requeued, or it is and a node could not be left out.
        RequeuedError: another node has done it.
    """
    job = job_id(environ)
    known = _shown(job)
    why_not = _why_not(known, environ)
    if why_not:
        raise SlurmError(why_not)
    if known.get("JobState", "RUNNING") != "RUNNING":
        raise RequeuedError(f"the job is {known['JobState'].lower()} already")
    allocated = spelled_out(known.get("NodeList", "") or environ.get("SLURM_JOB_NODELIST", ""))
    out = tuple(name for name in allocated if any(same(name, host) for host in hosts))
    before = known.get("ExcNodeList", "")
    excluded = ",".join(filter(None, ["" if before == "(null)" else before, *out]))
    code, said = _run("/bin/sh", "-c", REQUEUE, "requeue", job, excluded if out else "")
    if code == REFUSED and "pending" in said:
        raise RequeuedError(said)
    if code:
        done = "" if code == REFUSED else "the job is requeued, but on any nodes: "
        raise SlurmError(f"{done}{' '.join(said.split())[:COMMENT] or code}")
    return out


def _why_not(known: Mapping[str, str], environ: Mapping[str, str]) -> str:
    if known.get("BatchFlag") == "0":
        return "only a job of sbatch can be requeued"
    if known.get("Requeue") == "0":
        return "write `#SBATCH --requeue` into the script, which Slurm wants for that"
    if int(environ.get("SLURM_RESTART_COUNT") or 0) >= MOST_RESTARTS:
        return f"it has been started {MOST_RESTARTS} times again already"
    return ""


def _shown(job: str) -> dict[str, str]:
    """What Slurm says of a job. `Comment=` and a few others have a line of their own, and blanks in it."""
    found: dict[str, str] = {}
    for line in _scontrol("show", "job", job).splitlines():
        key, _, value = line.strip().partition("=")
        if key == "Comment":
            found[key] = value
        else:
            found |= dict(word.partition("=")[::2] for word in line.split() if "=" in word)
    return found


def _scontrol(*words: str) -> str:
    code, said = _run("scontrol", *words)
    if code:
        raise SlurmError(" ".join(said.split())[:COMMENT] or f"scontrol ended with {code}")
    return said


def _run(*command: str) -> tuple[int, str]:
    """The exit code of a command, and what it said."""
    process = None
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        said, _ = process.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        raise SlurmError(f"scontrol has not answered for {ANSWER_S:g} s") from None
    except FileNotFoundError:
        raise SlurmError("there is no scontrol here, as in most containers") from None
    except OSError as error:
        raise SlurmError(f"scontrol cannot be run: {error.strerror}") from None
    return process.returncode, said
