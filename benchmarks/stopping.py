"""What `safelaunch.should_stop()` costs a rank, in nanoseconds a call: while nobody stops, and outside safelaunch."""

from __future__ import annotations

import tempfile
from pathlib import Path

from figures import Figures, Row, parser
from heartbeat import each_ns


def main() -> None:
    options = parser(__doc__, runs=15).parse_args()
    import safelaunch
    from safelaunch import black_box
    from safelaunch.worker import stopping

    def plain() -> bool:
        return False

    figures = Figures("What should_stop() costs a rank", options.json)
    outside = [each_ns(safelaunch.should_stop) for _ in range(options.runs)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "black_box")
        black_box.create(path, 1)
        stopping.begin(black_box.Writer(path, 0).stop)
        inside = [each_ns(safelaunch.should_stop) for _ in range(options.runs)]
    empty = [each_ns(plain) for _ in range(options.runs)]
    figures.add(Row("safelaunch.should_stop()", "ns", {"safelaunch": inside}, target="<= 1000"))
    figures.add(Row("... outside safelaunch", "ns", {"safelaunch": outside}))
    figures.add(Row("... a function that returns False", "ns", {"safelaunch": empty}))
    figures.write()


if __name__ == "__main__":
    main()
