"""Any text can be read: nothing raises, and the time grows no faster than the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from safelaunch.settings.lint.extract import extract
from safelaunch.settings.lint.extract.readers import READERS
from safelaunch.settings.lint.installed import stated
from safelaunch.settings.lint.jobs import fix, look

NAMES = [
    "x.sh", "x.csh", "Dockerfile", "x.def", "x.yaml", "x.json", "x.env", "nccl.conf", "x.service", "x.lua", "Makefile",
    "x.md", "x.py", "x",
]  # fmt: skip

PIECES = [
    "export ", "A=1", "A", "=", "$A", "${A:-", "${", "}", "$(", "$((", "))", ")", "(", "`", '"', "'", "$'", "\\",
    "\\\n", "\n", " ", "\t", "#", "#SBATCH --export=", "<<EOF\n", "<<", "EOF\n", ";", ";;", "&&", "||", "|", "&",
    ">", "<", "<(", "if ", "then ", "else ", "fi ", "for A in ", "do ", "done ", "case x in ", "esac ", "{ ",
    "f() ", "[[ ", "]] ", "docker run -e ", "mpirun -x ", "env ", "bash -c ", "eval ", "set -a", "unset A",
    "FROM x\n", "ENV ", "RUN ", "ARG ", "env:", "- ", "name: ", "value: ", "run: |\n  ", ": ", "[", "]", "{", "}",
    ",", "{{", "}}", "*a", "&a ", "!t ", "setenv A ", "#%Module\n", "%environment\n", "Environment=",
    "export A := ", "\tA=1 x\n", "```bash\n", "```\n", "\x00", "é", "\ufeff", "\r\n", "1", "a", "-c ", "~", "%",
    "//", "/*", "*/", "NCCL_DEBUG=INFO ", "NCCL_X", "torchrun ", "--nnodes=", "--nproc-per-node 8 ", "srun ", "2 ",
    "#SBATCH --nodes=2\n", "#SBATCH -N", "$SLURM_PROCID", "--node_rank ", "--rdzv_endpoint=", "$(hostname)",
    "trap x USR1\n",
    "accelerate launch ", "python -m torch.distributed.launch ", "unset ", "resources:\n  gpuCount: 8\n",
]  # fmt: skip

texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=60).map("".join), st.text(max_size=200))


@settings(max_examples=600, deadline=None)
@given(name=st.sampled_from(NAMES), text=texts)
@example(name="x.yaml", text=">")  # a folded block without a line
def test_no_text_raises(name: str, text: str) -> None:
    lines = len(re.split(r"\r\n|\r|\n", text))
    for setting in extract(name, text):
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", setting.name)
        assert setting.value is None or "\0" not in setting.value
        assert 1 <= int(setting.origin.where.rpartition(":")[2]) <= lines


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from([*NAMES, "x.toml"]), text=texts)
@example(name="x.sh", text="torchrun export export (then ")  # a command without a word
def test_of_no_text_a_rule_fails(name: str, text: str) -> None:
    job = look.read(name, text)
    for one in look.remarks(job, stated("2.15", "2.30"), {}):
        assert one.finding.code != "SL902", one.finding.because
        assert 1 <= one.line <= len(job.lines)
        assert one.span is None or 0 <= one.span.start <= one.span.end <= len(job.lines[one.line - 1])
        assert isinstance(fix.apply(job.text, one.edits), str)


def test_every_kind_of_file_has_a_reader() -> None:
    assert {"shell", "dockerfile", "yaml", "json"} <= set(READERS)
    for name in NAMES:
        assert extract(name, "") == ()


LONG = [
    ("x.sh", "", "A=1;export A\n"),
    ("x.sh", "export X=", "A"),
    ("x.sh", 'export X="', "a "),
    ("x.sh", "cmd ", "--a=b "),
    ("x.sh", "", "it's\n"),
    ("x.sh", "", '"a'),
    ("x.sh", "", "$("),
    ("x.sh", "export X=", "${a:-"),
    ("x.sh", "", "("),
    ("x.sh", "", "( "),
    ("x.sh", "", "if a; then "),
    ("x.sh", "", "a=b&&"),
    ("x.sh", "", "<<a\n"),
    ("x.sh", "", "=`a"),
    ("x.sh", "", "X=$X$X\n"),
    ("x.sh", "", 'A="$A -e X=1"\n'),
    ("x.sh", "", "bash -c 'A=1 x';"),
    ("x.sh", "", "A=$(b=1 c) "),
    ("x.sh", "", "<a"),
    ("Dockerfile", "FROM x\nENV ", "A=1 "),
    ("Dockerfile", "FROM x\n", "RUN <<a\n"),
    ("Dockerfile", "FROM x\nENV A=", '"\\\n'),
    ("x.yaml", "env:\n", " A: 1\n"),
    ("x.yaml", "", "- "),
    ("x.yaml", "", "a: [\n"),
    ("x.yaml", "", 'a: "\n'),
    ("x.yaml", "", "args: x\n"),
    ("x.yaml", "", "a: {{"),
    ("x.yaml", "run: >\n", " A=1 b\n"),
    ("x.json", "[", '{"env":{"A":"1"}},'),
    ("x.json", "", "["),
    ("x.json", "[", "/*"),
    ("x.env", "A=", '" '),
    ("x.service", "[Service]\nEnvironment=", "A=1 \\\n"),
    ("Makefile", "A=", "$("),
    ("Makefile", "", "x: "),
    ("x.lua", 'setenv("A",', " "),
    ("x.md", "", "```\n"),
    ("x.def", "", "%post\nA=1 b\n"),
    ("x", "", "# ARG x\n"),
]


def seconds(name: str, text: str) -> float:
    start = time.process_time()
    extract(name, text)
    return time.process_time() - start


@pytest.mark.parametrize(("name", "start", "piece"), LONG, ids=lambda text: repr(text)[:20])
def test_the_time_grows_with_the_text_and_not_faster(name: str, start: str, piece: str) -> None:
    """Eight times the text: linear is 8 times the time, quadratic 64. The bound lies between, for a busy machine."""
    short = start + piece * (5_000 // len(piece))
    long = start + piece * (40_000 // len(piece))
    for _ in range(3):
        base = max(seconds(name, short), 0.004)
        if seconds(name, long) < 28 * base:
            return
    pytest.fail(f"{seconds(name, long):.2f} s for 40 kB, {seconds(name, short):.3f} s for 5 kB")


@pytest.mark.parametrize(("name", "start"), [("x.yaml", "a: b"), ("Makefile", "A = b")])
def test_a_run_of_blanks_is_looked_through_once(name: str, start: str) -> None:
    assert seconds(name, f"{start}{' ' * 60_000}c\n") < 0.5
