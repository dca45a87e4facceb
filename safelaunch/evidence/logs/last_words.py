"""What the last lines of a log say of how its job ended, in words that are nobody's own: of shells, C libraries,
launchers and loggers."""

from __future__ import annotations

import re
from typing import Literal

LINES = 10  # at the end of a log; the usage of a program stands ahead of what is wrong with its arguments

# The last words of jobs that end well, by those who know: torch elastic, and trainers that have come to their end.
_PROOF = re.compile(
    r"worker group successfully finished|worker group finished \(SUCCEEDED\)|torchelastic\.worker\.status\.SUCCEEDED"
    r"|`?Trainer\.fit`? stopped: `?max_|['\"]train_runtime['\"]: ?\d"
)
# What programs say, and scripts that start them.
_WORD = re.compile(
    r"^\W*(?:the )?(?:training|train|fine-?tuning|job|run|fit)\b(?![^:=]{0,30}\b(?:epoch|step|iter\w*|batch)\b)"
    r"(?P<between>[^:=]{0,30}?)\b(?:finished|completed?|done|succeeded)\b(?P<behind>.*)"
    r"|^(?P<before>.{0,60}?)\b(?:finished|completed|done) (?:the )?training\b(?P<after>.*)",
    re.IGNORECASE,
)
# What may stand behind such a word: nothing, how long and when, what was saved. Anything else may take it back.
_PLAIN = re.compile(
    r"\W*(?:successfully\W*)?(?:(?:in|at|on|after|by|took|total|time|elapsed|duration|sav(?:ed|ing)|best|final|model"
    r"|checkpoints?|weights|see|for (?:\d+|all|rank)|with (?:\d+|loss|accuracy|best|final)|exit(?:ing| code 0)"
    r"|status 0|rc ?= ?0)\b.*|\W*\d[\d\W]*(?:s|sec\w*|min\w*|h|hours?|steps?|epochs?)?\W*)?",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"\b(?:not|never|no|cannot|could|un\w{4,}|without|before|nan|inf|oom|error\w*|fail\w*|abnormal\w*|aborted|killed|early"
    r"|interrupt\w*|stopped|cancel\w*|false|incomplete|partial\w*|0 of)\b|n't\b"
    r"|\b(?:exit|code|status|rc|ret)\W{0,3}(?:code|status)?\W{0,3}-?[1-9]",
    re.IGNORECASE,
)
_NONE_OF_THEM = re.compile(
    r"\b(?:no|0|zero|without(?: any)?) (?:errors?|failures?|warnings?|problems?)\b", re.IGNORECASE
)


def well_ended(text: str) -> Literal["proof", "word", ""]:
    """Whether a line says that the job ended well, and whether by one who knows."""
    if _PROOF.search(text):
        return "proof"
    around = _around(text)
    return "word" if around and _PLAIN.fullmatch(around[1]) and not any(map(_TAKEN_BACK.search, around)) else ""


def _around(text: str) -> tuple[str, str] | None:
    """What stands around "finished" where a line says it of the job."""
    found = _WORD.match(text)
    if found is None:
        return None
    around = found["between"] or found["before"] or "", found["behind"] or found["after"] or ""
    return around[0], _NONE_OF_THEM.sub("", around[1])


# What a process writes that is about to end, or has ended: no sign that it went on.
LAST_WORDS = re.compile(
    r"^\s|^\[?[EWIF]\d{3,4} |wandb:|[Ww]arning|ERROR|Error|rror:|Exception|resource_tracker|leaked|srun|slurmstepd|"
    r"Aborted|core dumped|Killed|Terminat|SIGTERM|Sending process|exit|Exit|=====|-----|destroy|shut|Shut|kill|fail"
    r"|Fail|NCCL|terminate called|what\(\)|frame #|^\s*$|^#\d"
)
_SIGNALS = (
    "Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception|Killed|Terminated"
    "|Trace/breakpoint trap"
)
# Ends that nothing survives, or that somebody reports who waited for it.
_ENDED = re.compile(
    rf"\(core dumped\)|(?:^|: |\d {{1,8}})(?:{_SIGNALS})(?:$| {{2,}}\S|: \d)"  # bash, with pid and command
    r"|^(?:free|malloc|realloc|munmap_chunk)\(\): |double free or corruption|corrupted (?:size|double-linked)"
    r"|(?:stack smashing|buffer overflow) detected|terminate called |\bpanicked at |Process received signal"
    r"|MPI_ABORT was invoked|Assertion .{1,200} failed"
    r"|\bnon-?zero (?:exit|status|return|code)|\bexitcode\W{0,8}-?[1-9]"
    r"|\b[Ee]xit(?:ed)?\b[\w ,]{0,16}\b(?:code|status)\b[ :=]{0,3}\(?-?[1-9]|^\W{0,3}exit [1-9]\d{0,2}$"
    r"|\b(?:terminated|killed|ended|died|exited) (?:by|with|on|from) (?:a )?signal\b"
    r"|command not found|executable file not found|error while loading shared libraries|can't open file"
    r"|: No module named |: line \d{1,6}: |^\S{0,80}?sh: (?:\d{1,6}: )?\S"
    r"|\b[Ll]oss is:? (?:tensor\()?-?(?:[Nn]a[Nn]|inf)\b|Watchdog caught |Back-off restarting failed"
    r"|CrashLoopBackOff|OOMKilled",
)
# The same in other languages: the C library's names of signals, and the words for failed and error.
_ABROAD = re.compile(
    r"(?:^|: |\d {1,8})(?:Speicherzugriffsfehler|Getötet|Abgebrochen|Erreur de segmentation|Processus arrêté"
    r"|Tué|Abandon|Violación de segmento|Abortado|Errore di segmentazione|Ucciso|Falha de segmentação|Morto"
    r"|Ошибка сегментирования|Убито"
    r"|段错误|已杀死|已终止|已放弃|总线错误)(?:$| {2,}\S|: \d| ?[(\uff08])"
    r"|Speicherabzug geschrieben|核心已转储|コアダンプ|imagem do núcleo gravada"
    r"|(?i:\b(?:fehler|erreur|errore|ошибка)\b *:|\b(?:fehlgeschlagen|abgestürzt|échec|échoué|falló|fallito)\b)"
    r"|失败|失敗|崩溃|強制終了|エラーが|실패|오류"
)
# What machines write of an end: managers of processes, schedulers, drivers, and loggers that write fields.
_RECORDED = re.compile(
    r"^make(?:\[\d+\])?: \*\*\* |Main process exited, code=(?:killed|dumped)|Failed with result "
    r"|\b(?:Job)?State=(?:CANCELLED|TIMEOUT|OUT_OF_MEMORY|NODE_FAIL|FAILED|DEADLINE|BOOT_FAIL)\b"
    r"|(?i:\bexit[_ ]?(?:code|status)\b\W{1,4}-?[1-9]\d{0,2}\b)|(?i:^\W{0,3}(?:rc|ret)[ =:]{1,3}-?[1-9]\d{0,2}\W*$)"
    r"|\blevel=(?:error|fatal|panic|critical)\b"
    r"|\"(?:level|severity|levelname|lvl)\": ?\"(?i:error|fatal|critical|panic)\""
    r"|Memory access fault by GPU|HSA_STATUS_ERROR|fallen off the bus|double.bit ECC|GPU reset begin"
    r"|\bNo space left\b|Stale file handle|Read-only file system|Disk quota exceeded|launch\.py:\d+:sigkill_handler\]"
    r"|\b(?:job|rank \d+|worker(?: \d+)?|node \S+) (?:has )?(?:failed|crashed|died|exited unexpectedly)(?:$|[,.])"
    r"|\b[Uu]nhandled exception\b|[Ss]omething went wrong|\b[Ll]oss (?:became|has become) (?:[Nn]a[Nn]|inf)\b"
    r"|^SystemExit: (?!0$|None$)|^[A-Za-z_][\w.]{0,80}(?:Error|Exception)\(.{0,2000}\)$"
)
_NO_NUMBER = r"(?!\W{0,4}(?:\d|nan|none|tensor))"  # `val error: 0.03`
# What loggers and programs say of a failure, after which a job may yet have gone on.
_COMPLAINED = re.compile(
    rf"(?<![\w.-])(?:ERROR|FATAL|CRITICAL)(?![\w=]){_NO_NUMBER}"
    rf"|(?:^|[:\]>] ?)(?:[Ee]rror|[Ff]atal(?: error)?)[:!] ?{_NO_NUMBER}|^Error executing |^Could not override "
    r"|^(?:[A-Za-z_][\w.]{0,80})?(?:Error|Exception)(?:\([\w.]{1,80}\))?(?:$|: )"
    r"|(?<!\b0 )(?<!\bno )\b[Ff]ailed\b(?!\W{0,3}0\b)|\b(?:stopping training|giving up|aborting)\b"
    r"|: (?:No such file or directory|Permission denied)"
)
_NO_FAILURE = re.compile(r"[Ww]arn|WARN|INFO|DEBUG|[Rr]etry|[Tt]ry(?:ing)? |\bagain\b|^\[?[WI]\d{3,4} ")


def ends(text: str) -> bool:
    """Whether a line tells of an end that nothing survives."""
    return bool(_ENDED.search(text) or _RECORDED.search(text) or _ABROAD.search(text))


def tells_of_failure(text: str) -> bool:
    """Whether a line among the last ones of a log says that something failed.

    Args:
        text: the line, without what stands before its message.
    """
    around = _around(text)
    if ends(text) or (around is not None and any(map(_TAKEN_BACK.search, around))):
        return True
    return _COMPLAINED.search(text) is not None and not _NO_FAILURE.search(text)
