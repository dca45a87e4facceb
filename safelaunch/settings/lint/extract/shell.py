"""What a shell script sets: the flow of its commands, its branches, its here documents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from safelaunch.settings.lint.extract import command, documents, grammar, options
from safelaunch.settings.lint.extract.kinds import kind_by_name
from safelaunch.settings.lint.extract.readers import DEEPEST, read_as
from safelaunch.settings.lint.extract.scope import Command, Scope
from safelaunch.settings.lint.extract.words import (
    UNKNOWN,
    Token,
    below,
    blank_separated,
    expand,
    gathered,
    opened,
    quote,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_TRANSPARENT = frozenset({"if", "while", "until", "!", "time", "coproc", "then", "do", "else"})
_DEEPEST_BLOCK = 64
FUNCTIONS = -1  # the fork of functions: which of them are called together cannot be told
_PATIENCE = 16  # errors behind which the rest of a text is read once more
_DIRECTIVE = re.compile(r"#(?:SBATCH|PBS|BSUB|COBALT|PJM|FLUX:|flux:|\$)[ \t]")
_DIRECTIVES = {
    "#SBATCH": "sbatch", "#PBS": "qsub", "#$": "qsub", "#BSUB": "bsub", "#COBALT": "cobalt", "#PJM": "pjsub",
    "#FLUX:": "flux", "#flux:": "flux",
}  # fmt: skip
_ESCAPED = re.compile(r"\\([$`\\])")
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_STATEMENTS = frozenset({
    "command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments", "pipeline",
    "list", "if_statement", "for_statement", "while_statement", "case_statement", "function_definition", "subshell",
    "compound_statement", "redirected_statement", "negated_command", "do_group", "comment", "ERROR",
})  # fmt: skip


def read(text: str, line: int, scope: Scope) -> None:
    """Note what a script of sh, bash, zsh or ksh sets.

    Args:
        text: the script, with \\n between its lines.
        line: the line on which it starts.
        scope: takes its variables.
    """
    _Flow(text, line, scope).read()


def read_words(words: Sequence[Token], scope: Scope) -> None:
    """Note what one command sets that is given as words: `["docker", "run", "-e", "X=1"]`."""
    _Flow("", 1, scope).run(list(words))


class _Waiting(NamedTuple):
    document: grammar.Document
    words: list[str]
    target: str


class _Flow:
    """The reading of one script: where it is, and the here documents that wait for the end of their pipeline."""

    def __init__(self, text: str, line: int, scope: Scope, patience: int = _PATIENCE) -> None:
        self.scope = scope
        self.line = line
        self.source = text.encode("utf-8", "replace")
        self.patience = patience
        self.depth = 0
        self.documents: dict[int, grammar.Document] = {}
        self.waiting: list[_Waiting] = []
        self.last: tuple[list[Token], str] = ([], "")

    def read(self) -> None:
        try:
            root, self.documents = grammar.shell(self.source)
        except grammar.UnreadableError as error:
            self.scope.found.unreadable(self.line, str(error))
            return
        self.scope.found.torn += [range(self.line + first, self.line + last + 1) for first, last in grammar.torn(root)]
        self._all(root.children)

    # ----------------------------------------------------------------------------------------------- pieces

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def words(self, nodes: Iterable[Node]) -> list[Token]:
        """The words that nodes are."""
        nodes = [node for node in nodes if node.type not in _REDIRECTS and node.type != "comment"]
        return gathered(nodes, self.source, self.line)

    # ----------------------------------------------------------------------------------------------- flow

    def _all(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._visit(node)

    def _visit(self, node: Node) -> None:
        kind = node.type
        if not node.is_named or self.depth >= 4 * _DEEPEST_BLOCK:
            return
        self.depth += 1
        method = _VISITS.get(kind)
        if method is not None:
            method(self, node)
        else:
            self._all(node.children)
        self.depth -= 1

    def _branch(self, nodes: Iterable[Node], fork: int = 0) -> None:
        """What may happen or not; of branches of one fork only one happens."""
        before = self.scope.path
        self._fork(before, fork)
        self._all(nodes)
        self.scope.path = before

    def _fork(self, base: tuple[int, ...], fork: int = 0) -> None:
        self.scope.path = (*base, self.scope.found.branch(fork)) if len(base) < 2 * _DEEPEST_BLOCK else base

    def _conditional(self, node: Node) -> None:
        """if, elif: the condition is always looked at, the rest are branches of which one is taken."""
        fork = self.scope.found.branch()
        todo = [node]
        while todo:
            this = todo.pop(0)
            until = next((at for at, child in enumerate(this.children) if child.type == "then"), 0)
            self._all(this.children[:until])
            clauses = [child for child in this.children if child.type in ("elif_clause", "else_clause")]
            self._branch([child for child in this.children[until:] if child not in clauses], fork)
            todo = clauses + todo

    def _function(self, node: Node) -> None:
        self._branch(node.children, FUNCTIONS)

    def _block(self, node: Node) -> None:
        self._branch(node.children)

    def _compound(self, node: Node) -> None:
        if node.child_count and node.children[0].type != "((":
            self._all(node.children)

    def _bodies(self, node: Node) -> None:
        loop, self.scope.loop = self.scope.loop, True
        self._all(child for child in node.children if child.type in ("do_group", "compound_statement"))
        self.scope.loop = loop

    def _for(self, node: Node) -> None:
        head = [child for child in node.children if child.type not in ("do_group", ";", "compound_statement")]
        self.run(self.words(head))
        self._bodies(node)

    def _case(self, node: Node) -> None:
        fork = self.scope.found.branch()
        for item in node.children:
            if item.type == "case_item":
                after = next((at for at, child in enumerate(item.children) if child.type == ")"), 0)
                self._branch(item.children[after + 1 :], fork)

    def _list(self, node: Node) -> None:
        """a && b || c: what comes behind an operator may happen or not."""
        items: list[Node] = [node]
        while items[0].type == "list":
            items[:1] = items[0].children
        base = self.scope.path
        forked = False
        for item in items:
            if item.type in ("&&", "||"):
                if not forked or item.type == "||":
                    self._fork(base)
                    forked = True
            else:
                self._visit(item)
        self.scope.path = base

    def _subshell(self, node: Node) -> None:
        outer = self.scope
        self.scope = Scope(outer.found, outer)
        self._branch(node.children)
        self.scope = outer

    def _error(self, node: Node) -> None:
        """What the grammar could not place: the statements in it, or what stands on its further lines."""
        if any(child.type in _STATEMENTS for child in node.children):
            self._all(node.children)
            return
        self._again(node)

    def _again(self, node: Node) -> None:
        newline = self.source.find(b"\n", node.start_byte, node.end_byte)
        if newline >= 0 and self.patience:
            rest = self.source[newline + 1 : node.end_byte].decode("utf-8", "replace")
            line = self.line + self.source.count(b"\n", 0, newline + 1)
            again = _Flow(rest, line, self.scope, self.patience - 1)
            again.read()
            self.patience = again.patience

    # ------------------------------------------------------------------------------------------- commands

    def _pipeline(self, node: Node) -> None:
        waiting, self.waiting = self.waiting, []
        for child in node.children:
            self._statement(child)
        self._finish()
        self.waiting = waiting

    def _statement(self, node: Node) -> None:
        """A command in a pipeline, whose here documents wait for the end of it."""
        if node.type == "redirected_statement":
            self._redirected(node, finish=False)
        else:
            self.last = ([], "")
            self._visit(node)

    def _redirected(self, node: Node, finish: bool = True) -> None:
        self.last = ([], "")
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        for child in node.children:
            if child.type not in _REDIRECTS:
                self._visit(child)
        if not redirects:
            return
        words = self.last[0]
        target = ""
        documents: list[grammar.Document] = []
        for redirect in redirects:
            place = redirect.children[-1]
            document = self.documents.get(place.start_byte)
            operator = next((child.type for child in redirect.children if not child.is_named), "")
            if document is not None:
                documents.append(document)
                # What the grammar took for further names of the file are words of the command.
                words = words + self.words(redirect.children[2:])
            elif ">" in operator and not (operator[-1] == "&" and self._text(place).isdecimal()):
                target = expand(self._text(place), self.scope.lookup)
        if target and not documents:
            self._printed(words, target)
        self.last = (words, target)
        self.waiting += [_Waiting(document, self._texts(words), target) for document in documents]
        if finish:
            self._finish()

    def _printed(self, words: list[Token], target: str) -> None:
        """echo "X=1" >> .deepspeed_env"""
        kind = kind_by_name(target.replace(UNKNOWN, ""))
        if words and words[0].raw in ("echo", "printf") and kind in ("env", "plain-env"):
            for word in words[1:]:
                text = expand(word.raw, self.scope.lookup).replace("\\n", "\n")
                read_as(kind, text, word.line, Scope(self.scope.found, self.scope))

    def _finish(self) -> None:
        """The end of a pipeline: its here documents are read by its last command, or by what it writes."""
        waiting, self.waiting = self.waiting, []
        words, target = self.last
        for each in waiting:
            self._document(each, self._texts(words), target)

    def _texts(self, words: list[Token]) -> list[str]:
        return [expand(word.raw, self.scope.lookup) for word in words]

    def _command(self, node: Node) -> None:
        words = self.words(
            child for child in node.children if not (child.type == "ERROR" and b"\n" in (child.text or b""))
        )
        while words and words[0].raw in _TRANSPARENT:
            del words[0]
        for child in node.children:
            if child.type in ("subshell",):
                self._visit(child)
        self._substitutions(node)
        self.last = (words, "")
        self.run(words)
        for child in node.children:
            if child.type == "ERROR":
                self._again(child)

    def _assignment(self, node: Node) -> None:
        self._substitutions(node)
        self.run(self.words([node]))

    def run(self, words: list[Token]) -> None:
        """One command."""
        scope = self.scope
        texts = self._note(words)
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
                read(found.text, found.line, scope.inside(texts))

    def _note(self, words: list[Token]) -> tuple[str, ...]:
        """Keep a command for those who judge how jobs are started."""
        scope = self.scope
        spread = command.spliced(words, scope)
        texts = tuple(expand(word.raw, scope.lookup) for word in spread)
        top = not scope.around
        if spread:
            scope.found.commands.append(Command(tuple(spread), texts, scope.around, scope.loop, scope.resources, top))
        return texts

    def _substitutions(self, node: Node) -> None:
        """Read the commands in `$(...)`: JOB=$(sbatch --export=ALL,X=1 train.sh)."""
        if self.scope.depth >= DEEPEST:
            return
        for child in node.children:
            if child.type not in _REDIRECTS and child.child_count:
                for inner in below(child, lambda each: each.type in ("command_substitution", "process_substitution")):
                    if b"=" in (inner.text or b""):
                        outer = self.scope
                        self.scope = Scope(outer.found, outer)
                        self._all(inner.children)
                        self.scope = outer

    def _comment(self, node: Node) -> None:
        text = self._text(node)
        if not _DIRECTIVE.match(text):
            return
        head, _, rest = text.partition(" ")
        head, _, more = head.partition("\t")
        line = self.line + node.start_point.row
        if not self.scope.around:  # those of a job that the script writes and submits are not its own
            self.scope.found.directives.append((head, f"{more} {rest}".strip(), line))
        words = [Token(_DIRECTIVES.get(head, "sbatch"), line)]
        for word in blank_separated(f"{more} {rest}", line):
            if word.raw.startswith("#"):
                break
            words.append(word)
        for found in options.from_words(words, self.scope):
            if isinstance(found, options.Pair):
                self.scope.found.add(found.name, found.value, found.line)

    # ------------------------------------------------------------------------------------ here documents

    def _document(self, waiting: _Waiting, last: list[str], target: str) -> None:
        """Read a here document as what it will be: by the file it goes to, or by the program that reads it."""
        scope, line = self.scope, self.line + waiting.document.row
        body = waiting.document.text
        if not waiting.document.quoted:
            if not scope.around:
                scope.found.early.append((Token(body, line), line))
            body = _ESCAPED.sub(r"\1", opened(body))
        if waiting.words and waiting.words[0] == "read":  # read -r -d '' COMMAND <<EOF
            scope.assign(waiting.words[-1], UNKNOWN, line, quote(body))
            return
        kind = documents.kind(waiting.words, last, waiting.target or target, body)
        if kind == "shell" and "\n#SBATCH" in body:
            scope.found.jobs.append((body, line))
        if kind and scope.depth < DEEPEST:
            read_as(kind, body, line, scope.inside(tuple(waiting.words)))


_VISITS: dict[str, Callable[[_Flow, Node], None]] = {
    "command": _Flow._command,
    "declaration_command": _Flow._command,
    "unset_command": _Flow._command,
    "variable_assignments": _Flow._command,
    "variable_assignment": _Flow._assignment,
    "comment": _Flow._comment,
    "if_statement": _Flow._conditional,
    "do_group": _Flow._block,
    "function_definition": _Flow._function,
    "compound_statement": _Flow._compound,
    "c_style_for_statement": _Flow._bodies,
    "for_statement": _Flow._for,
    "case_statement": _Flow._case,
    "list": _Flow._list,
    "subshell": _Flow._subshell,
    "pipeline": _Flow._pipeline,
    "redirected_statement": _Flow._redirected,
    "ERROR": _Flow._error,
}
