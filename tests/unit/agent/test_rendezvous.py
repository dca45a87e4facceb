"""The rendezvous of torch's, without what only takes time."""

from __future__ import annotations

import pytest
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from safelaunch.agent import rendezvous


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 1000])
def test_methods_have_the_names_that_torch_gives_them(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> str:
        return dynamic_rendezvous.get_method_name(depth)

    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", dynamic_rendezvous.get_method_name)
    theirs = ask()
    rendezvous.name_methods_at_once()
    assert dynamic_rendezvous.get_method_name is not theirs
    assert ask() == theirs or depth == 0  # torch's own name


def test_only_the_random_delay_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(dynamic_rendezvous, "_delay", waited.append)

    rendezvous.join_at_once()
    dynamic_rendezvous._delay((0, 0.3))
    dynamic_rendezvous._delay(seconds=1)

    assert waited == [1]
