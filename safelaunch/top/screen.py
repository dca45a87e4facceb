"""The full screen of `safelaunch top`, by textual. The one place of safelaunch that draws with a library.

It uses the terminal's own colours, so that it fits a light one as well as a dark one, and takes no mouse: whoever wants
to copy a pid marks it as ever.
"""

from __future__ import annotations

import asyncio
import functools
import os
import select
import time
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from safelaunch.model import WorkerProcess
from safelaunch.printable import Line, line, lines
from safelaunch.top import looks, table
from safelaunch.top.picture import SORTS, Picture
from safelaunch.top.replay import Replay

STYLES = {
    "error": "bold ansi_red",
    "warning": "ansi_yellow",
    "good": "ansi_green",
    "strong": "bold",
    "note": "",
    "dim": "dim",
    "": "",
}
STDIN = 0
POLL_S, EVERY_S = 0.5, 1.0
MOST_CPU = 0.04  # of a core
MOVES = {"up", "down", "pageup", "pagedown", "home", "end"}
NOTICES = 1 / 3  # of the height, at most


def without_colours() -> None:
    """Where NO_COLOR is set, use none. It is not left to textual (8.2), which then writes black on black."""
    if os.environ.pop("NO_COLOR", ""):
        STYLES.update(error="bold", warning="", good="")


class Source(Protocol):
    """Where pictures come from: a run that goes on."""

    def poll(self) -> None: ...

    def picture(self) -> Picture: ...

    def workers(self) -> list[WorkerProcess]: ...

    def run_here(self) -> str: ...


def _is_hung_up() -> bool:
    """Whether nobody is at the other end of the terminal any more; where it is not that of our session, no signal says
    so."""
    poll = select.poll()
    poll.register(STDIN, 0)
    return bool(poll.poll(0))


def content(shown: Iterable[table.Parts], style: str = "") -> Content:
    """Lines for a widget, with a style beside their own: the one door of this screen. No text is read as markup."""
    parts: list[tuple[str, str]] = []
    for row in shown:
        parts += [(text, f"{STYLES[own]} {style}".strip()) for text, own in row] + [("\n", "")]
    return Content.assemble(*parts[:-1])


def plain(shown: Iterable[Line]) -> Content:
    """The same of lines without styles."""
    return content(((one, ""),) for one in shown)


class Text(ModalScreen[None]):
    """A longer text, to be scrolled.

    Args:
        title: what it is.
        read: gives the text; it may take its time, and runs in a thread.
    """

    CSS = """
    Text { background: ansi_default; }
    #title { height: 1; text-style: bold reverse; }
    #scroll { height: 1fr; scrollbar-size: 1 1; }
    #text { width: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "leave", "back"),
        Binding("up,k", "by(-1)", "up", show=False),
        Binding("down,j", "by(1)", "down", show=False),
        Binding("pageup", "by(-20)", "page up", show=False),
        Binding("pagedown,space", "by(20)", "page down"),
    ]

    def __init__(self, title: str, read: Callable[[], str]) -> None:
        super().__init__()
        self._caption = title
        self._read = read

    def compose(self) -> ComposeResult:
        yield Static(plain([line(self._caption)]), id="title")
        with VerticalScroll(id="scroll"):
            yield Static(plain([line("one moment ...")]), id="text")
        yield Footer(show_command_palette=False)

    async def on_mount(self) -> None:
        self.run_worker(self._fill(), exclusive=True)

    async def _fill(self) -> None:
        text = await asyncio.to_thread(self._read)
        self.query_one("#text", Static).update(plain(lines(text.rstrip("\n"))))

    def action_by(self, count: int) -> None:
        self.query_one("#scroll", VerticalScroll).scroll_relative(y=count, animate=False)

    def action_leave(self) -> None:
        self.dismiss()


class Top(App[None]):
    """The screen.

    Args:
        source: of pictures; during a replay it is not asked.
        end: gives the replay of a run that is over.
        every_s: seconds between two pictures; None for one, or more where there are so many ranks that it would take
            more than `MOST_CPU` of a core.
        sort: by what rows are sorted at first.
        bars: characters of the sparklines, the lowest first.
    """

    CSS = """
    Screen { background: ansi_default; color: ansi_default; overflow: hidden; }
    Static { height: auto; }
    #titles { height: 1; }
    #ranks { height: 1fr; border: none; padding: 0; background: ansi_default; scrollbar-size: 1 1; }
    #ranks > .option-list--option { padding: 0; background: ansi_default; color: ansi_default; }
    #ranks > .option-list--option-highlighted, #ranks:focus > .option-list--option-highlighted
        { padding: 0; background: ansi_default; color: ansi_default; }
    Footer, FooterKey { background: ansi_default; color: ansi_default; }
    FooterKey .footer-key--key { background: ansi_default; color: ansi_default; text-style: reverse; }
    FooterKey .footer-key--description { background: ansi_default; color: ansi_default; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "stacks", "stacks", key_display="enter"),
        Binding("d", "dump", "dump"),
        Binding("s", "sort", "sort"),
        Binding("n", "notices", "notices"),
        Binding("b,left", "move(-1)", "back", key_display="left"),
        Binding("f,right", "move(1)", "forth", key_display="right"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, source: Source, end: Callable[[], Replay], every_s: float | None, sort: str, bars: str) -> None:
        without_colours()
        super().__init__()
        self.theme = "ansi-dark"  # its colours are the terminal's
        self._source = source
        self._end = end
        self._replay: Replay | None = None
        self.fault: Exception | None = None  # of our own, which has ended the screen
        self._every_s = every_s
        self._used: list[tuple[float, float]] = []  # when the latest pictures were taken, by the clock and in CPU time
        self._sort = sort
        self._bars = bars
        self._on_terminal = os.isatty(STDIN)
        self._picture = Picture("", "", "", 0.0)
        self._moved = False
        self._texts: dict[str, list[table.Parts]] = {}
        self._drawn: tuple[list[str], list[table.Parts]] = [], []
        self._cursor: str | None = None  # the rank under it

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="titles")
        yield OptionList(id="ranks", markup=False)
        yield Static(id="told")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#ranks").focus()
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))  # after ctrl-z and fg
        if self._source.picture().over:
            self._replay = self._end()
        self._take()
        every_s = self._every_s or EVERY_S
        self.set_interval(min(POLL_S, every_s), self._look)
        self.set_interval(every_s, self._take_in_time)

    def _look(self) -> None:
        if self._on_terminal and _is_hung_up():
            self.exit()  # textual would read from it for ever
        if self._replay is None:
            self._guarded(self._source.poll)

    def _guarded(self, act: Callable[[], None]) -> None:
        """A fault of ours ends the screen, and is told behind it, as those of other commands are."""
        try:
            act()
        except Exception as error:
            self.fault = self.fault or error
            self.exit()

    def on_resize(self) -> None:
        self._draw()

    def _take_in_time(self) -> None:
        """Take a picture, unless the one before has been too dear; what is drawn at the start counts for nothing."""
        now = time.monotonic(), time.process_time()
        if self._every_s is None and len(self._used) > 2:
            clock, used = self._used[-1]
            if now[1] - used > MOST_CPU * (now[0] - clock):
                return
        self._used = [*self._used[-2:], now]
        self._guarded(self._take)

    def _take(self) -> None:
        before, self._picture = self._picture, (self._replay or self._source).picture()
        if before.over != self._picture.over:
            self.refresh_bindings()
        self._draw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  textual's
        """Which keys there are: a run that is over can be replayed, and has nobody to take evidence of."""
        return {"move": self._picture.over, "dump": not self._picture.over}.get(action, True)

    def _draw(self) -> None:
        """Draw the picture for a terminal as it is now."""
        picture, (columns, height) = self._picture, self.size
        room = max(columns, 1)
        rows = table.ordered(picture.rows, self._sort)
        all_ = table.columns(rows, room - 1)  # the last one is for a bar that tells of further rows
        self._put("#head", table.head(picture, room, self._sort))
        self._put("#titles", [table.header(all_, room)] if rows else [])
        self._put("#told", table.notices(picture.notices, room, max(int(height * NOTICES), 1)))
        drawn = [str(row.rank) for row in rows], [table.body(row, all_, room - 1, self._bars) for row in rows]
        if self._drawn != drawn:
            self._drawn = drawn
            self._put_rows(*drawn)

    def _put(self, name: str, shown: list[table.Parts]) -> None:
        if self._texts.get(name) != shown:
            self._texts[name] = shown
            self.query_one(name, Static).update(content(shown))

    def on_key(self, event: Key) -> None:
        """From the first move on the cursor stays on its rank; before it is on the row that comes first."""
        self._moved = self._moved or event.key in MOVES

    def _put_rows(self, names: list[str], shown: list[table.Parts]) -> None:
        """The rows, with the cursor on the rank on which it was."""
        ranks = self.query_one("#ranks", OptionList)
        place = names.index(self._cursor) if self._moved and self._cursor in names else 0
        ranks.set_options(Option(content([row]), id=name) for name, row in zip(names, shown, strict=True))
        if names:
            ranks.highlighted = place

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Draw the cursor: the list's own has no colours here by which it could be seen."""
        ranks = event.option_list
        for row, name in zip(self._drawn[1], self._drawn[0], strict=True):
            here = name == event.option_id
            if here or name == self._cursor:
                ranks.replace_option_prompt(name, content([row], "reverse" if here else ""))
        self._cursor = event.option_id

    @property
    def chosen(self) -> str | None:
        """The rank under the cursor."""
        ranks = self.query_one("#ranks", OptionList)
        place = ranks.highlighted
        return ranks.get_option_at_index(place).id if place is not None and place < ranks.option_count else None

    # ---------------------------------------------------------------------------------------------- keys

    def on_option_list_option_selected(self) -> None:
        self.action_stacks()

    def action_stacks(self) -> None:
        """The stacks of the rank under the cursor."""
        chosen = self.chosen
        if chosen is None:
            return
        worker = next((one for one in self._living() if str(one.rank) == chosen), None)
        if worker is not None:
            title = f"stacks of rank {chosen}, pid {worker.pid}, at {time.strftime('%H:%M:%S')}"
            self.push_screen(Text(title, functools.partial(looks.stacks_of, worker)))
            return
        told = self._replay.incident() if self._replay is not None else None
        if told is not None:
            read = functools.partial(looks.kept, told.folder, int(chosen))
            self.push_screen(Text(f"stacks of rank {chosen}, as {os.path.basename(told.folder)} keeps them", read))
        else:
            self.bell()

    def action_dump(self) -> None:
        """The evidence of all ranks of this node, into a folder of the run's."""
        run = self._source.run_here()
        if not run:
            self.bell()
            return
        title = f"evidence of all ranks, at {time.strftime('%H:%M:%S')}"
        self.push_screen(Text(title, functools.partial(looks.dump, run)))

    def _living(self) -> list[WorkerProcess]:
        return self._source.workers() if self._replay is None else []

    def action_notices(self) -> None:
        """All notices."""
        room = max(self.size.width - 1, 20)
        told = table.notices(self._picture.notices, room, 10_000)
        text = "\n".join("".join(part for part, _ in row) for row in told)
        self.push_screen(Text("notices", lambda: text or "none"))

    def action_sort(self) -> None:
        """The next way to sort."""
        names = list(SORTS)
        self._sort = names[(names.index(self._sort) + 1) % len(names)]
        self._draw()

    def action_move(self, by: int) -> None:
        """Another moment of a replay."""
        if self._replay is None:
            self._replay = self._end()
        self._replay.move(by)
        self._take()
