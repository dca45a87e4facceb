"""Broken input for whatever `safelaunch diagnose` and profiles read: real files, each changed a little at random.

    python tests/rigs/mutations.py --kind case --count 20000 --seed 1

A kind is one of those in KINDS. Each mutation is read as the command line reads it, in this process. What counts as a
fault: an exception that is no SafelaunchError (SL901 on the command line), more than 10 s, more than 512 MiB.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import os
import pickle
import random
import resource
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rank_mutations
from changed import of_bytes, of_document
from environment_mutations import an_environment, examined, of_users

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S, LIMIT_MIB = 10.0, 512

# ---------------------------------------------------------------------------------------------------- kinds


def documents() -> list[bytes]:
    """Cases of all kinds of incidents."""
    sys.path[:0] = [str(REPOSITORY / "tests")]
    import golden_file

    written = [path / "case.json" for path in golden_file.FOLDERS]
    compact = [json.dumps(line["case"]).encode() for line in golden_file.lines().values()]
    return [*(path.read_bytes() for path in written), *compact]


def dumps(ending: str) -> list[tuple[str, bytes]]:
    """The dumps of a few jobs, with their names."""
    found = sorted((REPOSITORY / "tests/dumps").glob("*/*_rank_*"))
    return [(path.name, path.read_bytes()) for path in found if path.name.endswith(".json") == (ending == "json")]


def logs() -> list[bytes]:
    """Logs of all kinds of failures."""
    sys.path[:0] = [str(REPOSITORY / "tests/unit/logs"), str(REPOSITORY / "tests")]
    from log_corpus import CORPUS

    return [text.encode() for files, _ in CORPUS.values() for text in files.values()]


def incident(folder: Path, case: bytes) -> Path:
    """A run directory with one incident."""
    evidence = folder / "run" / "incident-0" / "evidence"
    evidence.mkdir(parents=True, exist_ok=True)
    (evidence / "case.json").write_bytes(case)
    return folder / "run"


def a_case(folder: Path, chance: random.Random, real: list[bytes]) -> list[str]:
    data = chance.choice(real)
    if chance.random() < 0.8:
        return [str(incident(folder, json.dumps(of_document(json.loads(data), chance)).encode()))]
    return [str(incident(folder, of_bytes(data, chance)))]


SAID = {
    "run.json": {"run_id": "8f2c", "argv": ["train.py"], "nodes": 1, "started": 1.5, "host": "node-a"},
    "result.json": {
        "exit_code": 1,
        "verdicts": [],
        "findings": [{"code": "SL101", "severity": "note", "summary": "x"}],
    },
    "agent.jsonl": {"time": 1700000000.5, "t": 12.5, "event": "start"},
    "verdict.json": {"code": "SL401", "slug": "exception", "kind": "crash", "summary": "x", "because": ["y"]},
    "notice.json": {"code": "SL301", "slug": "late", "kind": "hang", "summary": "x", "detected_after_s": 1.0},
}


def a_run(folder: Path, chance: random.Random, real: list[bytes]) -> list[str]:
    run = incident(folder, chance.choice(real))
    said = json.loads(json.dumps(SAID))
    said["result.json"]["verdicts"] = [said["verdict.json"]]
    for name, document in said.items():
        place = run / "incident-0" / name if name in ("verdict.json", "notice.json") else run / name
        if chance.random() < 0.5:
            document = of_document([document], chance)
            document = document[0] if isinstance(document, list) and document else document
        place.write_bytes(
            of_bytes(json.dumps(document).encode(), chance) if chance.random() < 0.2 else json.dumps(document).encode()
        )
    if chance.random() < 0.3:
        (run / "incident-0/evidence/case.json").unlink()
    return [str(run)]


def an_archive(folder: Path, chance: random.Random, real: list[bytes]) -> list[str]:
    run = a_run(folder, chance, real)[0]
    kind = chance.choice(("tar.gz", "tar", "zip"))
    path = folder / f"bundle.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(run).rglob("*")):
                archive.write(file, file.relative_to(folder))
        path.write_bytes(of_bytes(path.read_bytes(), chance))
        return [str(path)]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(run, "run")
    data = of_bytes(packed.getvalue(), chance)
    data = gzip.compress(data, 1) if kind == "tar.gz" else data
    path.write_bytes(of_bytes(data, chance) if chance.random() < 0.5 else data)
    return [str(path)]


def some_dumps(folder: Path, chance: random.Random, real: list[tuple[str, bytes]]) -> list[str]:
    for name, data in chance.sample(real, 3):
        if chance.random() < 0.7:
            if name.endswith(".json"):
                data = json.dumps(of_document(json.loads(data), chance)).encode()
            else:
                data = pickle.dumps(of_document(pickle.loads(data), chance))
        else:
            data = of_bytes(data, chance)
        (folder / name).write_bytes(data)
    return [str(folder)]


def a_log(folder: Path, chance: random.Random, real: list[bytes]) -> list[str]:
    for number in range(chance.choice((1, 1, 2))):
        (folder / f"rank_{number}.log").write_bytes(of_bytes(chance.choice(real), chance))
    return [str(folder)]


def a_profile(folder: Path, chance: random.Random, real: list[bytes]) -> list[str]:
    (folder / "mine.toml").write_bytes(of_bytes(chance.choice(real), chance))
    return [str(folder / "mine.toml")]


def a_job(folder: Path, chance: random.Random, real: list[tuple[str, bytes]]) -> list[str]:
    name, data = chance.choice(real)
    (folder / name).write_bytes(of_bytes(data, chance))
    return [str(folder / name)]


JOBS = {
    "job.sh": b"""#!/bin/bash
#SBATCH --nodes=2 --export=ALL,NCCL_DEBUG=INFO
module load cuda
export NCCL_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}
cat > env.sh <<END
export NCCL_IB_DISABLE=1
END
source env.sh
if [ -n "$DEBUG" ]; then export TORCH_DISTRIBUTED_DEBUG=DETAIL; fi
srun --export=ALL,NCCL_ALGO=Ring bash -c "NCCL_PROTO=LL torchrun --nproc-per-node 8 train.py"
""",
    "pod.yaml": b"""apiVersion: v1
spec:
  containers:
    - name: train
      command: [sh, -c, "NCCL_DEBUG=WARN torchrun train.py"]
      env: &env
        - {name: NCCL_P2P_LEVEL, value: "SYS"}
        - name: TORCH_NCCL_ASYNC_ERROR_HANDLING
          value: "1"
    - name: other
      env: *env
      args:
        - |
          export NCCL_IB_HCA=mlx5
""",
    "Dockerfile": b"""FROM base AS train
ENV NCCL_DEBUG=INFO \\
    NCCL_BUFFSIZE=4194304
ARG LEVEL=2
RUN export CUDA_LAUNCH_BLOCKING=1 && python -m build
ENTRYPOINT ["env", "NCCL_NTHREADS=256", "torchrun"]
""",
    "job.json": b'{"env": {"NCCL_DEBUG": "INFO", "RANK": 0}, "cmd": "NCCL_ALGO=Tree torchrun t.py"}',
    "Makefile": b"export NCCL_DEBUG ?= INFO\nrun: build\n\tNCCL_IB_TC=106 torchrun train.py\n",
    "job.env": b"NCCL_DEBUG=INFO\nNCCL_IB_GID_INDEX='3'\n# a comment\n",
    "train.py": b'import os\nos.environ["NCCL_DEBUG"] = "INFO"\nos.environ.update(NCCL_ALGO="Ring")\n',
}


def jobs() -> list[tuple[str, bytes]]:
    """Files of jobs of all kinds that set variables."""
    found = [path for path in sorted((REPOSITORY / "examples").rglob("*")) if path.is_file()]
    return [*JOBS.items(), *((path.name, path.read_bytes()) for path in found)]


def profiles() -> list[bytes]:
    return [path.read_bytes() for path in sorted((REPOSITORY / "profiles").glob("*.toml"))]


def diagnosed(paths: list[str]) -> None:
    from safelaunch.cli import diagnose

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        diagnose.run(["--html", os.path.join(os.path.dirname(paths[0]), "page"), *paths])


def dumps_diagnosed(paths: list[str]) -> None:
    """As `diagnosed`, without the processes that read dumps: the start of one costs 30 ms."""
    from safelaunch.evidence.offline import dump_files

    read_all = dump_files.read_all
    dump_files.read_all = lambda found: [dump_files._read(one) for one in found]
    try:
        diagnosed(paths)
    finally:
        dump_files.read_all = read_all


def shown(paths: list[str]) -> None:
    from safelaunch.cli import profile

    with contextlib.redirect_stdout(io.StringIO()):
        profile.run(["show", *paths])


def linted(paths: list[str]) -> None:
    from safelaunch.settings.lint.installed import ELSEWHERE
    from safelaunch.settings.lint.jobs import files, look

    for path in paths:
        with contextlib.suppress(OSError):
            text = files.content(path, named=True)
            look.remarks(look.read(path, text or ""), ELSEWHERE, {})


Make = Callable[[Path, random.Random, Any], list[str]]
KINDS: dict[str, tuple[Callable[[], Any], Make, Callable[[list[str]], None]]] = {
    "case": (documents, a_case, diagnosed),
    "run": (documents, a_run, diagnosed),
    "archive": (documents, an_archive, diagnosed),
    "pickle": (lambda: dumps("pickle"), some_dumps, diagnosed),
    "json": (lambda: dumps("json"), some_dumps, dumps_diagnosed),
    "log": (logs, a_log, diagnosed),
    "profile": (profiles, a_profile, shown),
    "job": (jobs, a_job, linted),
    "rank": (rank_mutations.of_a_rank, rank_mutations.a_rank, rank_mutations.judged),
    "environment": (of_users, an_environment, examined),
}


def faults(kind: str, count: int, seed: int) -> Iterator[tuple[int, str]]:
    """The mutations of a kind that end in a fault of ours: their number and what happened."""
    from safelaunch.model import SafelaunchError

    load, make, read = KINDS[kind]
    real = load()
    for number in range(count):
        chance = random.Random(f"{kind} {seed} {number}")
        with tempfile.TemporaryDirectory() as name:
            paths = make(Path(name), chance, real)
            begun = time.monotonic()
            said = ""
            try:
                read(paths)
            except SafelaunchError:
                pass
            except Exception as error:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__}: {str(error)[:80]} in {frame.filename}:{frame.lineno}"
            took = time.monotonic() - begun
            if took > LIMIT_S:
                said = said or f"{took:.1f} s"
            if said:
                yield number, said


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kind", choices=KINDS, nargs="*", default=list(KINDS))
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    failed = 0
    for kind in chosen.kind:
        begun = time.monotonic()
        seen: Counter[str] = Counter()
        for number, said in faults(kind, chosen.count, chosen.seed):
            where = said.rpartition(" in ")[2]
            seen[where] += 1
            if seen[where] <= 2:
                print(f"{kind} {number}: {said}", flush=True)
        failed += seen.total()
        took, used = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"{kind}: {seen.total()} faults in {chosen.count} mutations, {took:.0f} s, {used} MiB", flush=True)
        failed += used > LIMIT_MIB
        for where, times in seen.most_common(30):
            print(f"  {times:5} {where}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
