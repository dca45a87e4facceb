"""The words of failure, by who says them: shells, C libraries, kernels, schedulers, launchers, trainers. `failing.py`
weighs them.

No word stands here for one case: each pattern is a family, such as the states of schedulers, the reasons in one word
that cluster managers give (`NodeLost`, `DeadlineExceeded`), or all texts of errno.
"""

from __future__ import annotations

import re

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
    r"|(?<!\b0 )(?<!\bno )(?<!['\"])\b[Ff]ailed\b(?!\W{0,3}0\b)|\b(?:stopping training|giving up|aborting)\b"
    r"|: (?:No such file or directory|Permission denied)"
)
# The states in which schedulers end a job, as a cell of a table or behind `State`; settings have a value.
_STATES = re.compile(
    r"(?<![\w=.'\"/-])(?:OUT_OF_ME(?:MORY|\+)|TIMEOUT|NODE_FAIL|CANCELLED\+?|PREEMPTED|DEADLINE|BOOT_FAIL|LAUNCH_FAILED"
    r"|RECONFIG_FAIL|REVOKED|FAILED(?:_\w+)?|FAULT(?:ED)?|EXPIRED|STOPPED_BY_\w+|UNKILLABLE)"
    r"(?![\w=.'\"/-]|\s{0,8}[:=]\s?\S|\s{1,8}\d{1,9}(?![\d:]))"
    r"|\b(?i:status|state|result|outcome|conclusion|phase|reason)[\"']?\s?[:=]\s?[\"']?(?i:failed|failure|error|killed"
    r"|aborted|cancell?ed|terminated|timed ?out|timeout|evicted|preempted|crashed|stopped|lost|unknown|dead|expired)\b"
    r"|\s\d{1,4}/\d{1,4}\s+(?:\w+:)?(?:Error|Evicted|Unknown|Terminating|ContainerStatusUnknown|NotReady|Failed)\b"
)
# Reasons in one word, as cluster managers and services of clouds give them.
_REASONS = re.compile(
    r"(?<![\w.'\"=/-])(?:[A-Z][a-z0-9]+|OOM|VM|GPU|EC2|[A-Z]{2,4}){1,5}"
    r"(?:Exceeded|Failed|Failure|Lost|Killed|Evicted|Expired|Aborted"
    r"|Preempted|Preemption|Terminated|Interrupted|Interruption|Unreachable|Unavailable|Unhealthy|NotReady|Crashed|Stopped)"
    r"(?![\w=.(]|\s?[:=]\s?(?:0\b|false|none|null|-?\d))"
)
# Notices that a node goes away, or that the job has to.
_NOTICES = re.compile(
    r"\b(?:interruption|pre-?emption|eviction|termination|reclaim\w*)\b.{0,40}\b(?:notice|warning|event|signal)\b"
    r"|\b(?:notice|warning|event|signal)\b.{0,40}\b(?:interruption|pre-?empt\w*|evict\w*|termination|reclaim\w*)\b"
    r"|\binstance[- ]action\b\W{0,4}(?:stop|terminate|hibernate)"
    r"|\bwill be (?:terminated|reclaimed|stopped|shut ?down|evicted|pre-?empted|rebooted)\b"
    r"(?! (?:after|if|when|unless))"
    r"|\b(?:spot|preemptible) (?:\w+ ){0,2}(?:interrupt|reclaim|terminat|preempt)\w*"
    r"|\bdeleted by \w+ manager\b|\bJob was (?:held|aborted|evicted|removed|killed|deleted)\b"
    r"|\b(?:no longer|not) (?:active|alive|running|reachable|responding)\b"
    r"|\blonger than (?:the )?(?:specified|allowed|configured|maximum|permitted) (?:deadline|time|limit|duration)\b"
    r"|\bKeyboard ?Interrupt\b"
    r"|\bno (?:heartbeat|response|reply|answer|progress)s? (?:from|for|since|of|in)\b"
    r"|\bmissed (?:\w+ ){0,3}heartbeats?\b|\bheartbeats? (?:\w+ ){0,2}(?:timed out|timeout|expired|lost|missed)",
    re.IGNORECASE,
)
# Kernels and drivers, and what stands on a network or a file system that has gone.
_KERNEL = re.compile(
    r"\bself-detected stall\b|\bdetected stalls? on CPU|\b(?i:(?:soft|hard) lockup)\b|\boom_reaper\b|\breaped process\b"
    r"|\b[Rr]emount\w*\b.{0,40}\bread-?only\b|\bkernel BUG\b|\bBUG: |\bOops\b|\bCall Trace:|\bpage fault\b"
    r"|\b[Ll]ink (?:is |has gone |went )?(?:[Dd]own|DOWN|lost)\b|\b[Cc]arrier (?:lost|down)\b|\bNETDEV WATCHDOG\b"
    r"|\b(?:not responding|unresponsive|lease (?:was )?lost|lost its \w+ lease)\b|\bmiss count\b|\b[Uu]nmount and run\b"
    r"|\b[Cc]onnection (?:to \S{1,80} |with \S{1,80} )?(?:was |has been )?(?:closed by|reset by|dropped|lost)\b"
)
# What a trainer says that gives up for its numbers.
_NUMBERS = re.compile(
    r"\b(?:non-?finite|nan|inf|infinite|diverg\w*|explod\w*)\b.{0,80}\b(?:exit|stop|abort|quit|terminat|halt|kill)\w*"
    r"|\b(?:loss|gradients?|training)\b.{0,40}\b(?:explod\w*|diverged|diverging)\b"
    r"|\bminimum loss scale\b|\bloss scale\b.{0,20}\bminimum\b|\bgiv(?:ing|en) up\b|\bgave up\b"
    r"|\bshutting (?:the )?(?:job|run|training|cluster|engine|server|node|program) down\b"
    r"|\b(?:terminat|kill|abort|cancel)ing (?:the |this |all |remaining )?(?:\w+ )?(?:job|run|training|program|step"
    r"|tasks?|process(?:es)?(?! group)|subprocess\w*|ranks?|pods?|instances?|node)\b"
    r"|\b(?:job|run|training|task|container|instance|node|pod) (?:was |has been |is )?stopped"
    r" (?:after|by|because|due)\b",
    re.IGNORECASE,
)
# `exited 137`, with nothing behind it that it counts.
_EXITED = re.compile(r"\b[Ee]xit(?:ed)?:? (?:with )?\(?-?[1-9]\d{0,2}\)?(?=$|[.,;:])")
# What the C library says of an errno that no program waits for (errno(3), glibc).
_ERRNOS = (
    "Input/output error|Remote I/O error|No such device(?: or address)?|No space left on device|Disk quota exceeded"
    "|Read-only file system|Stale file handle|Structure needs cleaning|Too many open files(?: in system)?"
    "|Permission denied|Operation not permitted|No such file or directory|File too large|Text file busy|Bad address"
    "|Bad message|Bad file descriptor|Cannot allocate memory|Argument list too long|Exec format error|No such process"
    "|Device or resource busy|No locks available|Resource deadlock avoided|Owner died|State not recoverable"
    "|Transport endpoint is not connected|Cannot send after transport endpoint shutdown|Network is (?:down|unreachable)"
    "|Host is (?:down|unreachable)|No route to host|Connection (?:refused|reset by peer|timed out)|Broken pipe"
    "|Software caused connection abort|Network dropped connection on reset|Machine is not on the network"
    "|Link has been severed|Communication error on send|Protocol error|Address already in use"
    "|Cannot assign requested address|No buffer space available|Key (?:has expired|has been revoked)"
    "|Required key not available|Cannot access a needed shared library|Temporary failure in name resolution"
    "|Name or service not known|No data available|No child processes|Destination address required"
)
_ERRNO = re.compile(rf"(?:^|[:\])] )(?:{_ERRNOS})(?=$|[\s.,:;()'\"])")
_RPC = re.compile(
    r"(?<![\w.])(?:DEADLINE_EXCEEDED|UNAVAILABLE|RESOURCE_EXHAUSTED|ABORTED|INTERNAL|DATA_LOSS|FAILED_PRECONDITION"
    r"|CANCELLED|PERMISSION_DENIED|UNAUTHENTICATED): \S"
)
# Words that speak of trouble. Beside a number they count something.
_TROUBLES = (
    "errors?(?!(?: \\w+){0,2}\\s*[:=]?\\s*-?\\d+\\.\\d)"
    "|fail(?:ed|ure|ures|s|ing)?|abort(?:ed|ing)?|killed|terminat(?:ed|ion)|crash(?:ed)?|refused|lost"
    "|unreachable|denied|exceeded|preempt(?:ed|ion)|evict(?:ed|ion)|exception|cannot|can't|unable|corrupt(?:ed|ion)?"
    "|not found|no such|timed? ?out|hung|stuck|deadlock(?:ed)?|died|dead|fatal|segfault|panic|interrupted|cancell?ed"
    "|no devices|invalid|mismatch(?:ed)?|disconnected|unhealthy|assertion|backoff|leaving|rejected|unresponsive"
)
_NOT_WITHIN = r"(?<![\w=.'\"/-])(?<!\bno )(?<!\b0 )"  # a name, a path or a setting
_TROUBLE = re.compile(
    rf"{_NOT_WITHIN}(?:{_TROUBLES})\b"
    r"(?![\w.]*\s*[:=]?\s*(?:-?\d+(?:\.\d+)?\b|nan|none|tensor))(?![-_=/.]\w)|\bsignal:? ?\d|^\^C"
    r"|\bSIG(?:ABRT|ALRM|BUS|CHLD|CONT|FPE|HUP|ILL|INT|IO|KILL|PIPE|QUIT|SEGV|STOP|SYS|TERM|TRAP|XCPU)\b"
    r"|\b(?:caught|got|received|by|on) (?:an? |the )?(?:\w+ ){0,2}signal\b(?! handl)",
    re.IGNORECASE,
)
_SPEAKS = re.compile(rf"{_NOT_WITHIN}(?:{_TROUBLES})\b(?![\w.]*\s*[:=]?\s*-?\d+(?:\.\d+)?\b)", re.IGNORECASE)
_FROM_OUTSIDE = (_STATES, _REASONS, _NOTICES, _KERNEL)
_FAMILIES = (_COMPLAINED, _TROUBLE, _NUMBERS, _EXITED, _ERRNO, _RPC)


def ends(text: str) -> bool:
    """Whether a line tells of an end that nothing survives."""
    return bool(_ENDED.search(text) or _RECORDED.search(text) or _ABROAD.search(text))


def complains(text: str) -> bool:
    """Whether a line says that something failed, after which a job may yet have gone on."""
    return any(family.search(text) for family in _FAMILIES)


def is_doubtful(text: str) -> bool:
    """Whether nothing but a word of trouble in it makes a line say that something failed: settings, messages of a start
    and names have such words as well."""
    others = (_COMPLAINED, _NUMBERS, _EXITED, _ERRNO, _RPC, *_FROM_OUTSIDE)
    return not ends(text) and not any(family.search(text) for family in others)


def from_outside(text: str) -> bool:
    """Whether a line is what a scheduler, a cloud, a kernel or a terminal says that ends a job: its level means
    nothing."""
    return any(family.search(text) for family in _FROM_OUTSIDE)


def speaks(text: str) -> bool:
    """Whether a line has a word of trouble, whatever stands beside it."""
    return _SPEAKS.search(text) is not None
