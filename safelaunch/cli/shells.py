"""The scripts by which bash, zsh and fish complete a command line, from a description of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from safelaunch import __version__

ARGUMENT = "WORD"  # in the place of an option's name: what stands behind no option


@dataclass(frozen=True)
class Offer:
    """What may stand at a place: words with what they mean, files, folders, runs (folders below ./safelaunch_runs)."""

    words: tuple[tuple[str, str], ...] = ()
    files: bool = False
    folders: bool = False
    runs: bool = False


@dataclass(frozen=True)
class Word:
    """An option: its spellings (those that are accepted and not offered apart), its help, and what its value may be,
    None for an option without a value. `many`: it may be repeated."""

    spellings: tuple[str, ...]
    hidden: tuple[str, ...]
    help: str
    value: Offer | None
    many: bool


@dataclass(frozen=True)
class Command:
    """A subcommand, or the launch of a script, whose name is ""."""

    name: str
    about: str
    options: tuple[Word, ...]
    arguments: Offer


def together(offers: Iterable[Offer]) -> Offer:
    """All that any of them offers."""
    every = list(offers)
    words = {word: about for offer in every for word, about in offer.words}
    return Offer(
        tuple(words.items()),
        any(offer.files for offer in every),
        any(offer.folders for offer in every),
        any(offer.runs for offer in every),
    )


def _places(commands: Sequence[Command]) -> dict[Offer, list[str]]:
    """Each offer with the places where it is made: a command and the option before it."""
    found: dict[Offer, list[str]] = {}
    for command in commands:
        found.setdefault(command.arguments, []).append(f"{command.name} {ARGUMENT}")
        for option in command.options:
            if option.value is not None:
                names = (f"{command.name} {name}" for name in option.spellings + option.hidden)
                found.setdefault(option.value, []).extend(names)
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _head(shell: str) -> str:
    return f"# Completion for {shell}, written by `safelaunch completion {shell}` of safelaunch {__version__}."


# --------------------------------------------------------------------------------------------------- bash


def bash(commands: Sequence[Command]) -> str:
    """A script for bash 4.4 or later, which needs no package beside it."""
    offers = [(places, offer) for offer, places in _places(commands).items() if offer != Offer()]
    valued = [place for places in _places(commands).values() for place in places if not place.endswith(f" {ARGUMENT}")]
    options = "\n".join(
        f"        {_quoted(command.name)}) offered={_quoted(' '.join(_spellings(command)))} ;;" for command in commands
    )
    cases = "\n".join(
        f"        {'|'.join(map(_quoted, places))})\n            {_bash_offer(offer)} ;;" for places, offer in offers
    )
    names = " ".join(command.name for command in commands if command.name)
    return f"""\
{_head("bash")}
_safelaunch() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} command= before= argument= word at offered= files= folders= runs=
    local -a words=()
    COMPREPLY=()
    for ((at = 1; at < COMP_CWORD; at++)); do
        [[ ${{COMP_WORDS[at]}} == = ]] || words+=("${{COMP_WORDS[at]}}")  # --log=raw is three words to readline
    done
    [[ $cur == = ]] && cur=
    if [[ ${{#words[@]}} -gt 0 && " {names} " == *" ${{words[0]}} "* ]]; then
        command=${{words[0]}}
        words=("${{words[@]:1}}")
    elif [[ ${{#words[@]}} == 0 && $cur != -* ]]; then
        offered={_quoted(names)}
    fi
    for word in "${{words[@]}}"; do
        if [[ -n $before ]]; then
            before=
            continue
        fi
        case "$command $word" in
{_wrapped(valued)}) before=$word ;;
            *' '-*) ;;
            *) argument=1 ;;
        esac
    done
    if [[ -z $command && -n $argument ]]; then
        files=1  # behind the script all is the script's own
    elif [[ -z $before && $cur == -* ]]; then
        case $command in
{options}
        esac
    else case "$command ${{before:-{ARGUMENT}}}" in
{cases}
    esac fi
    mapfile -t COMPREPLY < <(
        [[ -n $offered ]] && compgen -W "$offered" -- "$cur"
        [[ -n $files ]] && compgen -f -- "$cur"
        [[ -n $folders && -z $files ]] && compgen -d -- "$cur"
        [[ -n $runs ]] && {{ (cd safelaunch_runs 2>/dev/null && compgen -d -- "$cur"); compgen -d -- "$cur"; }}
    )
    [[ -z $files$folders$runs ]] || compopt -o filenames 2>/dev/null
}}
complete -F _safelaunch safelaunch"""


def _spellings(command: Command) -> list[str]:
    return [name for option in command.options for name in option.spellings]


def _bash_offer(offer: Offer) -> str:
    words = " ".join(word for word, _ in offer.words)
    parts = [f'offered="$offered "{_quoted(words)}'] if words else []
    parts += [f"{kind}=1" for kind in ("files", "folders", "runs") if getattr(offer, kind)]
    return "; ".join(parts)


def _wrapped(places: Sequence[str]) -> str:
    """Patterns of a case, four a line."""
    quoted = list(map(_quoted, places))
    return "|\\\n".join("            " + "|".join(quoted[at : at + 4]) for at in range(0, len(quoted), 4))


# ---------------------------------------------------------------------------------------------------- zsh


def zsh(commands: Sequence[Command]) -> str:
    """A script for zsh: to be sourced, or to lie in a folder of fpath as `_safelaunch`."""
    functions = {offer: f"_safelaunch_offer_{at}" for at, offer in enumerate(_places(commands)) if offer != Offer()}
    launch, *others = commands
    offers = "\n".join(f"{name}() {{\n{_zsh_offer(offer)}\n}}" for offer, name in functions.items())
    cases = "\n".join(
        f"            {command.name})\n                shift words; (( CURRENT-- ))\n"
        f"                _arguments -S -s : {_zsh_specs(command, functions)}; return ;;"
        for command in others
    )
    listed = " ".join(_quoted(f"{command.name}:{command.about}") for command in others)
    return f"""\
#compdef safelaunch
{_head("zsh")}
{offers}
_safelaunch_first() {{
    local -a commands=({listed})
    (( CURRENT == 2 )) && _describe -t commands command commands
    _files
}}
_safelaunch() {{
    if (( CURRENT > 2 )); then
        case $words[2] in
{cases}
        esac
    fi
    _arguments -S -s : {_zsh_options(launch, functions)} \\
        '1:script:_safelaunch_first' '*::argument:_files'
}}
if [[ ${{funcstack[1]}} == _safelaunch ]]; then _safelaunch "$@"; else compdef _safelaunch safelaunch; fi"""


def _zsh_offer(offer: Offer) -> str:
    words = " ".join(_quoted(f"{word}:{about}" if about else word) for word, about in offer.words)
    lines = [f"    local -a values=({words})", "    _describe -t values value values"] if words else []
    lines += ["    _files"] if offer.files else ["    _files -/"] if offer.folders else []
    runs = ["    local -a runs=(safelaunch_runs/*(N/:t))", "    _describe -t runs run runs", "    _files -/"]
    lines += runs if offer.runs else []
    return "\n".join(lines)


def _zsh_specs(command: Command, functions: dict[Offer, str]) -> str:
    action = functions.get(command.arguments)
    return _zsh_options(command, functions) + (f" \\\n                    '*:argument:{action}'" if action else "")


def _zsh_options(command: Command, functions: dict[Offer, str]) -> str:
    return "".join(
        f" \\\n                    {spec}" for option in command.options for spec in _zsh_spec(option, functions)
    )


def _zsh_spec(option: Word, functions: dict[Offer, str]) -> Iterator[str]:
    about = option.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = "" if option.value is None else f":value:{functions.get(option.value, ' ')}"
    among = "*" if option.many else f"({' '.join(option.spellings)})" if len(option.spellings) > 1 else ""
    for name in option.spellings:
        joined = "" if option.value is None else "=" if name.startswith("--") else "+"
        yield _quoted(f"{among}{name}{joined}[{about}]{value}")


# --------------------------------------------------------------------------------------------------- fish


def fish(commands: Sequence[Command]) -> str:
    """A script for fish 3.5 or later."""
    functions = {offer: f"__safelaunch_offer_{at}" for at, offer in enumerate(_places(commands)) if offer.words}
    valued = " ".join(
        name for option in commands[0].options if option.value for name in option.spellings + option.hidden
    )
    names = " ".join(command.name for command in commands if command.name)
    lines = [
        _head("fish"),
        *(line for offer, name in functions.items() for line in _fish_function(name, offer)),
        f"""\
function __safelaunch_at --description 'whether a subcommand, or "launch" or "script", is what is written now'
    set -l words (commandline -opc)
    set -e words[1]
    set -l at launch
    if contains -- "$words[1]" {names}
        set at $words[1]
    else
        set -l value 0
        for word in $words
            if test $value = 1
                set value 0
            else if contains -- $word {valued}
                set value 1
            else if not string match -q -- '-*' $word
                set at script
            end
        end
    end
    test $at = $argv[1]
end
function __safelaunch_first --description 'whether nothing is written yet'
    test (count (commandline -opc)) = 1
end
complete -c safelaunch -e
complete -c safelaunch -n '__safelaunch_at script' -F""",
    ]
    for command in commands:
        if command.name:
            lines.append(
                f"complete -c safelaunch -n __safelaunch_first -a {command.name} -d {_fish_quoted(command.about)}"
            )
        here = f"complete -c safelaunch -n '__safelaunch_at {command.name or 'launch'}'"
        lines.append(here + _fish_values(command.arguments, functions, argument=True))
        lines += [here + _fish_option(option, functions) for option in command.options]
    return "\n".join(lines)


def _fish_option(option: Word, functions: dict[Offer, str]) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in option.spellings)
    values = "" if option.value is None else " -r" + _fish_values(option.value, functions)
    return f"{names}{values} -d {_fish_quoted(option.help)}"


def _fish_values(offer: Offer, functions: dict[Offer, str], *, argument: bool = False) -> str:
    calls = [f"({functions[offer]})"] if offer in functions else []
    calls += ["(__fish_complete_directories)"] if offer.folders and not offer.files else []
    calls += ["(path basename safelaunch_runs/*/ 2>/dev/null)"] if offer.runs else []
    shown = " -F" if offer.files or (offer.runs and argument) else " -f"
    return shown + (f" -k -a {_fish_quoted(' '.join(calls))}" if calls else "")


def _fish_function(name: str, offer: Offer) -> Iterator[str]:
    yield f"function {name}"
    for word, about in offer.words:
        yield f"    printf '%s\\t%s\\n' {word} {_fish_quoted(about)}" if about else f"    echo {word}"
    yield "end"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
