"""What a shell script sets: the flow of its commands, its branches, its here documents."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from safelaunch.settings.lint.extract import command, options, tools
from safelaunch.settings.lint.extract.kinds import kind_of
from safelaunch.settings.lint.extract.readers import DEEPEST, read_as
from safelaunch.settings.lint.extract.scan import Scanner
from safelaunch.settings.lint.extract.scope import Path, Scope
from safelaunch.settings.lint.extract.tokens import Token, blank_separated, tokens
from safelaunch.settings.lint.extract.words import UNKNOWN, expand, opened, quote

_TRANSPARENT = frozenset({"if", "while", "until", "!", "time", "coproc"})
_OPENS = {"then": "then", "do": "do", "else": "then"}
_CLOSES = {"fi": "then", "endif": "then", "elif": "then", "else": "then", "done": "do", "}": "{"}
_DEEPEST_BLOCK = 64
_DIRECTIVES = {
    "#SBATCH": "sbatch", "#PBS": "qsub", "#$": "qsub", "#BSUB": "bsub", "#COBALT": "cobalt", "#PJM": "pjsub",
    "#FLUX:": "flux", "#flux:": "flux",
}  # fmt: skip
_SUBSTITUTION = re.compile(r"""\\.|["'`]|\$\(\(|\$\(|[<>]\(""", re.DOTALL)
_ESCAPED = re.compile(r"\\([$`\\])")
_PRINTERS = frozenset({"cat", "echo", "less", "more", "grep", "sed", "awk", "wc", "head", "tail", "sort", "diff"})


def read(text: str, line: int, scope: Scope) -> None:
    """Note what a script of sh, bash, zsh or ksh sets.

    Args:
        text: the script, with \\n between its lines.
        line: the line on which it starts.
        scope: takes its variables.
    """
    _Flow(scope).read(tokens(text, line))


def read_words(words: Sequence[Token], scope: Scope) -> None:
    """Note what one command sets that is given as words: `["docker", "run", "-e", "X=1"]`."""
    flow = _Flow(scope)
    flow.words = list(words)
    flow.finish(";")


class _Block(NamedTuple):
    kind: str
    path: Path
    chain: Path | None
    scope: Scope


class _Document(NamedTuple):
    body: Token
    words: list[str]
    target: str


class _Flow:
    """The reading of one script: where it is, and the command that is being gathered."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.words: list[Token] = []
        self.blocks: list[_Block] = []
        self.too_deep = 0
        self.branches = 0
        self.chain: Path | None = None  # where the path was before `a && b`
        self.function = self.case = self.pattern = self.test = False
        self.redirect = ""
        self.target = ""
        self.bodies: deque[Token] = deque()
        self.documents: list[_Document] = []

    def read(self, stream: Iterator[Token]) -> None:
        gathered: list[Token] = []
        for token in stream:
            if token.kind == "document":
                self.bodies.append(token)
            else:
                gathered.append(token)
            if token.kind == "newline":
                for index, item in enumerate(gathered):
                    self._take(item, gathered[index + 1] if index + 1 < len(gathered) else item)
                gathered = []
                self.bodies.clear()

    def _take(self, token: Token, following: Token) -> None:
        if token.kind == "comment":
            self._directive(token)
        elif self.test:
            self.test = token.raw != "]]" and token.kind != "newline"
        elif self.pattern:
            if token.raw == "esac" and token.kind == "word":
                self.pattern = False
                self._close("case")
            elif token.raw == ")":
                self.pattern = False
                self._branch(self.scope.path)
        elif token.kind == "word":
            self._word(token)
        elif token.raw in ("<<", "<<-", "<<<") or token.raw[0] in "<>" or token.raw.startswith("&>"):
            self.redirect = token.raw
        elif token.raw == "(":
            self._parenthesis(following)
        else:
            self._operator(token.raw)

    def _word(self, token: Token) -> None:
        if self.redirect:
            if self.redirect in ("<<", "<<-"):
                if self.bodies:
                    self.documents.append(_Document(self.bodies.popleft(), [], ""))
            elif ">" in self.redirect and not (self.redirect[-1] == "&" and token.raw.isdecimal()):
                self.target = token.raw
            self.redirect = ""
        elif self.words:
            if self.case and token.raw == "in":
                self._open("case")
                self.words, self.case, self.pattern = [], False, True
            elif self.function:
                self.words = []
                self._word(token)
            else:
                self.words.append(token)
        elif token.raw in _TRANSPARENT or token.raw in _OPENS or token.raw in _CLOSES:
            if token.raw in _CLOSES:
                self._close(_CLOSES[token.raw])
            if token.raw in _OPENS:
                self._open(_OPENS[token.raw])
        elif token.raw == "{":
            if self.function:
                self.function = False
                self._open("{")
        elif token.raw == "esac":
            self._close("case")
        elif token.raw == "[[":
            self.test = True
        elif token.raw == "function":
            self.function = True
        else:
            self.case = token.raw == "case"
            self.words.append(token)

    def _parenthesis(self, following: Token) -> None:
        if len(self.words) == 1 and following.raw == ")":
            self.words, self.function = [], True
        elif self.function and following.raw == ")":
            pass
        else:
            self.finish("(")
            self._open("(")
            self.scope = Scope(self.scope.found, self.scope)

    def _operator(self, raw: str) -> None:
        if raw == ")" and self.function and not self.words:
            return
        self.finish(raw)
        if raw == ")":
            self._close("(")
        elif raw in (";;", ";&", ";;&"):
            block = self.blocks[-1] if self.blocks else None
            if block and block.kind == "case":
                self.pattern = True
                self.scope.path, self.chain = block.path, None
        elif raw in ("&&", "||"):
            if self.chain is None or raw == "||":
                self._branch(self.scope.path if self.chain is None else self.chain, chain=True)
        elif raw not in ("|", "|&") and self.chain is not None:
            self.scope.path, self.chain = self.chain, None

    # ------------------------------------------------------------------------------------------- blocks

    def _branch(self, base: Path, chain: bool = False) -> None:
        self.branches += 1
        if chain:
            self.chain = base
        self.scope.path = (*base, self.branches) if len(base) < 2 * _DEEPEST_BLOCK else base

    def _open(self, kind: str) -> None:
        if len(self.blocks) >= _DEEPEST_BLOCK:
            self.too_deep += 1
            return
        self.blocks.append(_Block(kind, self.scope.path, self.chain, self.scope))
        self.chain = None
        if kind != "case":
            self._branch(self.scope.path)

    def _close(self, kind: str) -> None:
        if self.too_deep:
            self.too_deep -= 1
        elif self.blocks and self.blocks[-1].kind == kind:
            block = self.blocks.pop()
            self.scope = block.scope
            self.scope.path, self.chain = block.path, block.chain

    # ----------------------------------------------------------------------------------------- commands

    def finish(self, operator: str) -> None:
        """End the command that was gathered; `operator` is what ends it."""
        words, self.words, self.redirect, self.case = self.words, [], "", False
        target, self.target = self.target, ""
        if words:
            self.function = False
            self._run(words)
        if not self.documents:
            return
        texts = [expand(word.raw, self.scope.lookup) for word in words]
        where = expand(target, self.scope.lookup)
        self.documents = [
            document if document.words else document._replace(words=texts, target=where) for document in self.documents
        ]
        if operator not in ("|", "|&"):
            documents, self.documents = self.documents, []
            for document in documents:
                self._document(document, texts, where)

    def _run(self, words: list[Token]) -> None:
        scope = self.scope
        for word in words:
            if "(" in word.raw or "`" in word.raw:
                self._substitutions(word)
        for found in command.run(words, scope):
            if scope.depth >= DEEPEST:
                continue
            if found.kind == "json":
                read_as("json", found.text, found.line, Scope(scope.found, scope))
            elif found.kind == "eval":
                scope.depth += 1
                read(found.text, found.line, scope)
                scope.depth -= 1
            else:
                read(found.text, found.line, Scope(scope.found, scope))

    def _substitutions(self, word: Token) -> None:
        """Read the commands in `$(...)`: JOB=$(sbatch --export=ALL,X=1 train.sh)."""
        raw, scope = word.raw, self.scope
        if scope.depth >= DEEPEST or "=" not in raw:
            return
        scanner = Scanner(raw)
        pos, quoted = 0, False
        while match := _SUBSTITUTION.search(raw, pos):
            piece, pos = match[0], match.end()
            if piece == '"':
                quoted = not quoted
            elif piece == "'" and not quoted:
                pos = scanner.end(pos, "'")
            elif piece == "`" or (piece[-1] == "(" and piece != "$((" and (piece[0] == "$" or not quoted)):
                start, pos = pos, scanner.end(pos, "`" if piece == "`" else ")")
                line = word.line + raw.count("\n", 0, start)
                read(raw[start : pos - 1], line, Scope(scope.found, scope))

    def _directive(self, token: Token) -> None:
        head, _, rest = token.raw.partition(" ")
        head, _, more = head.partition("\t")
        words = [Token("word", _DIRECTIVES.get(head, "sbatch"), token.line)]
        for word in blank_separated(f"{more} {rest}", token.line):
            if word.raw.startswith("#"):
                break
            words.append(word)
        for found in options.from_words(words, self.scope):
            if isinstance(found, options.Pair):
                self.scope.found.add(found.name, found.value, found.line)

    # ------------------------------------------------------------------------------------ here documents

    def _document(self, document: _Document, last: list[str], target: str) -> None:
        """Read a here document as what it will be: by the file it goes to, or by the program that reads it."""
        scope = self.scope
        body = document.body.raw
        if not document.body.quoted:
            body = _ESCAPED.sub(r"\1", opened(body))
        if document.words and document.words[0] == "read":  # read -r -d '' COMMAND <<EOF
            scope.assign(document.words[-1], UNKNOWN, document.body.line, quote(body))
            return
        names = [text.rsplit("/", 1)[-1] for text in (document.words + last)]
        where = document.target or target
        for tee in ("tee", "sponge"):
            if tee in last:
                where = next((text for text in last[last.index(tee) + 1 :] if not text.startswith("-")), where)
        if where and where != "/dev/null":
            kind = kind_of(where.replace(UNKNOWN, ""), body)
        elif set(names) & {"kubectl", "oc"}:
            kind = "yaml"
        elif set(names) & {"docker", "podman", "buildah"}:
            kind = "dockerfile"
        elif any(tools.OWN_WORDS.fullmatch(name) for name in names) or not names:
            kind = "python" if any(name.startswith("python") for name in names) else ""
        elif (
            (names[0] in _PRINTERS and set(names) <= _PRINTERS | {""})
            or tools.BUILTINS.fullmatch(names[0])
            or (names[0] == "cat" and document.words == last)
        ):
            kind = ""
        else:
            kind = kind_of("", body)
        if kind and scope.depth < DEEPEST:
            read_as(kind, body, document.body.line, Scope(scope.found, scope))
