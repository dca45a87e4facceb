"""What `safelaunch diagnose` writes for others: a page for a browser, and a bundle for a colleague."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
import tarfile
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from safelaunch import output, redaction
from safelaunch.cli.output import show as show_lines
from safelaunch.codec import checked
from safelaunch.evidence.offline import archives, bundle
from safelaunch.model import Case, SafelaunchError, Verdict
from safelaunch.open_folder import OpenFolder
from safelaunch.printable import visible, whole
from safelaunch.run import pages
from safelaunch.settings.commandline import misuse

if TYPE_CHECKING:
    from safelaunch.cli.diagnose import Conclusion
    from safelaunch.report.page import Surroundings

TARS = archives.ARCHIVES
RUN = "run.json"
TEXTS = (".txt", ".log", ".json", ".jsonl")
LOG_BYTES = 256 << 10  # of each log: its end tells most
MARGIN = 64 << 10  # bytes before that in which a secret may begin
MANIFEST = 2 << 20  # bytes: as large as a Secret of Kubernetes can be, twice
SECRET = re.compile(rb"kind[\"']?\s*:\s*[\"']?Secret\b")
ALL_LOGS = 32 << 20  # bytes; looking for secrets takes 0.1 s for each MB, and 1 s where each line holds one
DEPTH = 6  # folders below the one that is packed
NULS = 8  # of so many bytes one may be a NUL: file systems leave holes


# ---------------------------------------------------------------------------------------------------------- page


def page(target: str | None, found: Sequence[Conclusion]) -> str:
    """Write the page on all conclusions to `target` (None: a new temporary folder, `-`: the standard output), and
    return its path.

    Raises:
        SafelaunchError: when it cannot be written.
    """
    subjects = [pages.subject(one.case, one.verdict, one.shown, one.notes, one.logs) for one in found]
    try:
        path = target or os.path.join(tempfile.mkdtemp(prefix="safelaunch-"), pages.NAME)
        output.write(path, _encoded(pages.build(subjects, _surroundings(found))), private=_is_private(found))
    except OSError as error:
        raise _unwritable("the report", error) from error
    return path


def _is_private(found: Sequence[Conclusion]) -> bool:
    """Whether others may not read all that the page is made of: then they may not read the page either."""
    logs = (file.path for one in found if one.logs is not None for file in one.logs.files)
    return any(not _is_for_all(path) for path in {*logs, *(path for one in found for path in one.paths)} - {"-"})


def _is_for_all(path: str) -> bool:
    try:
        modes = [os.stat(path).st_mode, os.stat(os.path.dirname(path) or os.curdir).st_mode]
    except OSError:
        return False
    return bool(modes[0] & stat.S_IROTH and modes[1] & stat.S_IXOTH)


def tell_of_page(path: str, *, show: bool) -> None:
    """Say where the page is, and open it in the browser where asked. Not below limits: a browser would inherit them."""
    if path == output.STANDARD_OUTPUT:
        return
    path, opened = os.path.abspath(path), False
    if show and os.path.isfile(path):
        try:
            opened = webbrowser.open(f"file://{path}")
        except (webbrowser.Error, OSError):
            pass
    _tell(f"no browser can be opened here; the report is {path}" if show and not opened else f"wrote {path}")


def _surroundings(found: Sequence[Conclusion]) -> Surroundings | None:
    """What lies beside the evidence, where all of it is of one run."""
    places = {path for one in found if one.kind == "bundle" for path in one.paths}
    if len(places) == 1 and os.path.isfile(place := places.pop()) and place.endswith(TARS):
        with tempfile.TemporaryDirectory() as folder:
            _unpack_run(place, folder)
            return pages.surroundings(folder)
    runs = {pages.run_dir_of(path) for one in found if one.kind == "bundle" for path in one.paths} - {""}
    return pages.surroundings(runs.pop()) if len(runs) == 1 else None


def _unpack_run(path: str, folder: str) -> None:
    """Write the run's own documents below a folder, under names of ours."""
    wanted = {"run.json": "", "env.txt": "", "result.json": ""}  # with the places of those that were found
    try:
        # Forwards only, as when it was read within its bounds: a member of negative size has no end otherwise
        # (CVE-2025-8194).
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                name = os.path.basename(member.name)
                if wanted.get(name) not in ("", member.name) or not member.isreg() or member.size > pages.MAX_BYTES:
                    continue
                wanted[name] = member.name  # the first folder's; of two of one name the last one, as elsewhere
                file = archive.extractfile(member)
                if file is not None:
                    with open(os.path.join(folder, name), "wb") as copy:
                        copy.write(file.read())
    except (*archives.DAMAGED, tarfile.TarError, RecursionError):
        pass  # what is missing is not shown


# -------------------------------------------------------------------------------------------------------- bundle


@dataclass(frozen=True)
class Subject:
    """What is to be packed: the folder, and the one incident of it that is wanted (empty: all)."""

    root: OpenFolder
    incident: str = ""


def check(target: str, paths: Sequence[str]) -> Subject | None:
    """What is to be packed, held before anything is read: its owner may put a link in its place later. None where there
    is nothing.

    Raises:
        SafelaunchError: for a name that is no tar file's, and for anything but one run directory or incident.
    """
    if target != output.STANDARD_OUTPUT and not target.endswith((".tar.gz", ".tgz")) and _is_file(target):
        raise misuse(f"--bundle {target}: a bundle is a .tar.gz file", f"name it {target}.tar.gz")
    if len(paths) != 1:
        raise misuse("--bundle packs one run or incident at a time", "name one PATH")
    if paths[0].endswith(TARS) and os.path.isfile(paths[0]):
        raise misuse(f"{paths[0]} is a bundle already", "send that one, or name the run directory")
    if os.path.exists(paths[0]) and not bundle.knows(paths[0]):
        raise misuse(
            f"{paths[0]} holds no run of safelaunch: there is nothing to pack",
            "name a run directory or an incident folder",
        )
    if not os.path.exists(paths[0]):
        return None
    root, incident = _what(paths[0])
    try:
        return Subject(OpenFolder(root), incident)
    except OSError as error:
        raise misuse(f"{paths[0]} cannot be packed: {error.strerror}", "name the folder itself") from error


def pack(target: str, subject: Subject) -> None:
    """Pack a run, or an incident with what is known of its run, into `target`, without secrets.

    Raises:
        SafelaunchError: when it cannot be read or written.
    """
    root = subject.root
    packed = io.BytesIO()
    count = 0
    skipped: list[str] = []
    try:
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, data in _members(root, subject.incident, skipped):
                member = tarfile.TarInfo(_named(os.path.join(os.path.basename(root.path) or "run", name)))
                member.size, member.mode = len(data), 0o600
                member.mtime = int(root.modified)
                archive.addfile(member, io.BytesIO(data))
                count += 1
        output.write(target, packed.getvalue())
    except OSError as error:
        raise _unwritable("the bundle", error) from error
    finally:
        root.close()
    left_out = (
        f", {len(skipped)} left out ({', '.join(skipped[:3])}{', ...' if skipped[3:] else ''})" if skipped else ""
    )
    name = "the bundle" if target == output.STANDARD_OUTPUT else target
    _tell(
        f"wrote {name}: {count} files, {max(1, packed.tell() >> 10)} KiB{left_out}; "
        "secrets that could be recognised are gone, but look through it before you send it"
    )


def _named(path: str) -> str:
    """A name within a bundle: whoever unpacks it sees it, and so does his terminal."""
    return os.sep.join(redaction.text(visible(part)).replace(os.sep, "_") for part in path.split(os.sep))


def _what(path: str) -> tuple[str, str]:
    """The folder to pack, and the one incident of it that is wanted (empty: all)."""
    folder = os.path.abspath(os.path.dirname(path) if os.path.isfile(path) else path)
    if os.path.basename(folder) == "evidence":
        folder = os.path.dirname(folder)
    run = pages.run_dir_of(folder)
    if not run or run == folder:
        return folder, ""
    return run, os.path.relpath(folder, run)


def _members(root: OpenFolder, incident: str, skipped: list[str]) -> Iterator[tuple[str, bytes]]:
    left = ALL_LOGS
    ours: set[str] = set()
    runs: set[str] = set()
    for folder, below, names in root.walk():
        inside = os.path.relpath(folder, root.path)
        run_id = pages.run_id(folder, lambda path: root.text(path, pages.MAX_BYTES)) if RUN in names else ""
        runs |= {run_id} - {""}
        if len(runs) > 1:
            raise misuse(f"{root.path} holds several runs: {', '.join(sorted(runs))}", "name the directory of one")
        if inside != "." and inside.count(os.sep) + 1 >= DEPTH:
            below.clear()
        if incident and inside == ".":
            below[:] = [name for name in below if not name.startswith("incident-") or name == incident.split(os.sep)[0]]
        if run_id or os.path.dirname(folder) in ours or _has_case(root, folder):
            ours.add(folder)
        # Whatever else lies below a folder that was named is none of a bundle's business.
        for name in names if folder in ours else ():
            path = os.path.join(folder, name)
            shown = os.path.normpath(os.path.join(inside, name))
            if name == pages.NAME or name.endswith(".part"):
                continue  # made anew from what is packed
            data = _redacted(root, path, min(left, LOG_BYTES)) if name.endswith(TEXTS) else None
            if data is None or (name.endswith(".log") and left <= 0):
                skipped.append(shown)
                continue
            left -= len(data) if name.endswith(".log") else 0
            yield shown, data
        said = next((name for name in ("verdict.json", "notice.json") if name in names), None)
        if said is not None and folder in ours:
            made = _page(root, folder, said)
            if made:
                yield os.path.normpath(os.path.join(inside, pages.NAME)), made


def _has_case(root: OpenFolder, folder: str) -> bool:
    try:
        os.close(root.open(os.path.join(folder, bundle.CASE)))
    except OSError:
        return False
    return True


def _redacted(root: OpenFolder, path: str, most: int) -> bytes | None:
    """A file without its secrets; of a log its end. None where that is not possible."""
    try:
        descriptor = root.open(path)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        cut = path.endswith((".log", ".jsonl")) and size > most > 0
        if cut and file.seek(_begin_of(file, max(0, size - most - MARGIN))):
            file.readline()
        raw = file.read(archives.MAX_DOCUMENT + 1)
    if len(raw) > archives.MAX_DOCUMENT or raw.count(b"\0") > len(raw) // NULS:
        return None  # in UTF-16 no secret is found
    content = raw.decode("utf-8", errors="backslashreplace")
    if path.endswith(".json"):
        return _encoded(_document(content, 1) + "\n")
    if path.endswith(".jsonl"):
        shown = _encoded("".join(f"{line}\n" for line in _records(content.removesuffix("\n").split("\n"))))
    else:
        shown = _encoded(redaction.text(content))
    # Only now: a key of which a cut leaves the second half is told by nothing.
    return shown[-most:].partition(b"\n")[2] if cut and len(shown) > most else shown


def _begin_of(file: BinaryIO, cut: int) -> int:
    """Where to begin, so that what announces a secret is not cut away: a manifest of Kubernetes names its kind once,
    ahead of up to 1 MiB."""
    file.seek(max(0, cut - MANIFEST))
    opened = max((found.start() for found in SECRET.finditer(file.read(min(cut, MANIFEST)))), default=None)
    return cut if opened is None else max(0, max(0, cut - MANIFEST) + opened - MARGIN)


def _document(content: str, indent: int | None = None) -> str:
    try:
        return json.dumps(redaction.document(json.loads(content)), indent=indent)
    except (ValueError, RecursionError):
        return redaction.text(content)


def _records(lines: list[str]) -> list[str]:
    """Lines of JSON, looked at together: a key may begin in one and end in another. What is none is a text."""
    documents: dict[int, Any] = {}
    for at, line in enumerate(lines):
        try:
            documents[at] = json.loads(line)
        except (ValueError, RecursionError):
            continue
    try:
        told = [json.dumps(one) for one in redaction.records([*documents.values()])]
    except RecursionError:
        return redaction.lines(lines)
    others = [at for at in range(len(lines)) if at not in documents]
    shown = dict(zip([*documents, *others], [*told, *redaction.lines([lines[at] for at in others])], strict=True))
    return [shown[at] for at in range(len(lines))]


def _encoded(content: str) -> bytes:
    return content.encode("utf-8", errors="backslashreplace")


def _page(root: OpenFolder, folder: str, said: str) -> bytes | None:
    """The page on an incident, with the verdict of that name."""
    from safelaunch.report import page as html

    def read(name: str) -> Any:
        return redaction.document(json.loads(root.text(os.path.join(folder, name), archives.MAX_DOCUMENT)))

    try:
        case, verdict = checked(Case, read(bundle.CASE)), bundle.without_advice(checked(Verdict, read(said)))
        shown = os.path.relpath(folder, root.path)
        known = pages.surroundings(folder, text=lambda path: root.text(path, pages.MAX_BYTES))
        return _encoded(html.build([pages.subject(case, verdict, shown)], known))
    except (OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return None


def _is_file(path: str) -> bool:
    """Whether it is a file, or will be one: anything else has the name that it has."""
    return os.path.isfile(path) or not os.path.exists(path)


def _unwritable(what: str, error: OSError) -> SafelaunchError:
    return misuse(f"{what} cannot be written: {error.filename or ''}: {error.strerror}", "name another place")


def _tell(line: str) -> None:
    show_lines([whole("safelaunch: ", line)], sys.stderr)
