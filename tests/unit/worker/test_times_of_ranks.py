"""What a rank counts of its own time: in loaders, and in collectives and waits for them."""

from __future__ import annotations

from pathlib import Path

from torch_ranks import GLOO, run

LOADING = """
import torch, torch.utils.data
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        time.sleep(0.05)
        return index
def spent():
    pulse = slot().pulse
    return [pulse.loading, pulse.loader_workers]
if __name__ == "__main__":
    start = spent()
    list(torch.utils.data.DataLoader(Items(), batch_size=1))
    main = spent()
    thread = threading.Thread(target=lambda: list(torch.utils.data.DataLoader(Items(), batch_size=1)))
    thread.start()
    thread.join()
    beside = spent()
    list(torch.utils.data.DataLoader(Items(), batch_size=1, num_workers=1))
    say(start=start, main=main, beside=beside, forked=spent())
"""


def test_time_in_loaders_is_that_of_the_main_thread(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, LOADING)
    said = rank.said

    assert (rank.code, rank.err) == (0, "")
    assert said["start"] == [0.0, -1]
    assert said["main"][0] >= 0.2
    assert said["main"][1] == 0
    assert said["beside"] == said["main"]
    assert said["forked"][0] >= said["main"][0] + 0.05
    assert said["forked"][1] == 1


MEETING = (
    GLOO
    + """
def waited():
    return slot().pulse.waited
tensor = torch.ones(1)
dist.barrier()
before = waited()
if RANK == 1:
    time.sleep(0.3)
dist.all_reduce(tensor)
blocking = waited() - before
work = None
dist.barrier()
before = waited()
if RANK == 1:
    time.sleep(0.3)
work = dist.all_reduce(tensor, async_op=True)
work.wait()
waiting = waited() - before
orders = [call[0] for call in black_box_reader.Reader(PLACE[0]).arrivals(PLACE[1], os.getpid(), 0)]
words = black_box_reader.Reader(PLACE[0]).arrivals(PLACE[1], os.getpid(), orders[-2])[0][-1]
say(blocking=blocking, waiting=waiting, orders=orders, words=[word.decode() for word in words])
dist.destroy_process_group()
"""
)


def test_time_in_collectives_and_in_waits(tmp_path: Path) -> None:
    early, late = run(tmp_path, MEETING, ranks=2)

    assert (early.code, late.code) == (0, 0), early.err + late.err
    assert early.said["blocking"] >= 0.25
    assert early.said["waiting"] >= 0.25
    assert late.said["blocking"] < early.said["blocking"]
    assert late.said["waiting"] < early.said["waiting"]
    assert early.said["orders"] == list(range(1, len(early.said["orders"]) + 1))
    assert early.said["words"][0] == "all_reduce"
    assert early.said["words"][3].endswith(".py")
