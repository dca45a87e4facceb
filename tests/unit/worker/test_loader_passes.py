"""What a rank's pulse has of its loaders: each pass with its batches, and no loader mixed up with another."""

from __future__ import annotations

from pathlib import Path

from torch_ranks import run

from safelaunch import pulse

PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset
ASKED = []
class Samples(Dataset):
    def __len__(self):
        ASKED.append(1)
        return 10
    def __getitem__(self, index):
        return torch.ones(1)
class Stream(IterableDataset):
    def __iter__(self):
        yield from (torch.ones(1) for _ in range(3))
    def __len__(self):
        raise RuntimeError("not to be asked")
def passes():
    return [[place, number, given, length, bool(ended)] for place, number, given, length, ended in slot().pulse.loaders]
def train(loader):
    for batch in loader:
        pass
def evaluate(loader, stop):
    for number, batch in enumerate(loader):
        if number == stop:
            break
if __name__ == "__main__":
    tensors = TensorDataset(torch.zeros(11, 1))
    trained = DataLoader(tensors, batch_size=2)
    for _ in range(2):
        train(trained)
        evaluate(DataLoader(tensors, batch_size=4, drop_last=True), 0)
    two = passes()
    train(DataLoader(Stream(), batch_size=None))
    train(DataLoader(Samples(), sampler=DistributedSampler(Samples(), num_replicas=2, rank=0), batch_size=2))
    workers = DataLoader(tensors, batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        train(workers)
    more = passes()
    asked = len(ASKED)
    bare = DataLoader(Samples(), batch_size=2)
    train(bare)
    unknown = passes()
    for number in range(12):
        exec(compile("for batch in trained: pass", "made-%d.py" % number, "exec"))
    say(two=two, more=more, unknown=unknown, many=passes(), asked=len(ASKED) - asked)
"""


def test_each_pass_of_each_loader(tmp_path: Path) -> None:
    (rank,) = run(tmp_path, PROGRAM)
    said = rank.said

    assert (rank.code, rank.err) == (0, "")
    (training, *trained), (evaluation, *evaluated) = said["two"]
    assert training != evaluation
    assert (trained, evaluated) == ([2, 6, 6, True], [2, 1, 2, False])
    stream, sampled, workers = [numbers for place, *numbers in said["more"] if place not in (training, evaluation)]
    assert stream == [1, 3, -1, True]
    assert sampled == [1, 3, 3, True]
    assert workers == [3, 6, 6, True]
    # The length of the user's own data set is not asked for: torch does that, once for each pass.
    assert said["unknown"][-1][1:] == [1, 5, -1, True]
    assert said["asked"] == 1
    assert len({place for place, *_ in said["many"]}) == 8
    assert all(numbers == [1, 6, 6, True] for _, *numbers in said["many"])


def given(writer: pulse.Writer, turn: pulse.Turn, batches: int) -> None:
    writer.fed(None, turn, batches)


def test_a_loader_whose_room_was_taken_writes_no_more() -> None:
    memory = bytearray(4096)
    writer = pulse.Writer(memory, 0)
    training = writer.begin_pass(1, 100, 0)
    given(writer, training, 50)
    for place in range(2, pulse.LOADERS + 2):
        given(writer, writer.begin_pass(place, 3, 0), 1)
    given(writer, training, 51)
    writer.end_pass(training)

    loaders = {place: rest for place, *rest in pulse.Pulse(memory, 0).loaders}
    assert loaders == {place: [1, 1, 3, 0.0] for place in range(2, pulse.LOADERS + 2)}


def test_a_pass_that_another_one_of_the_same_loader_has_followed_writes_no_more() -> None:
    memory = bytearray(4096)
    writer = pulse.Writer(memory, 0)
    first, second = writer.begin_pass(1, 9, 0), writer.begin_pass(1, 9, 0)
    given(writer, second, 2)
    given(writer, first, 7)
    writer.end_pass(first)
    assert pulse.Pulse(memory, 0).loaders == [(1, 2, 2, 9, 0.0)]


SAMPLERS = """
import torch
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset, WeightedRandomSampler
class Indices:
    asked = 0
    def __len__(self):
        Indices.asked += 1
        return 6
    def __getitem__(self, index):
        return index
tensors = TensorDataset(torch.zeros(11, 1))
for sampler in (SubsetRandomSampler(range(6)), WeightedRandomSampler([1.0] * 11, 8), SubsetRandomSampler(Indices())):
    if isinstance(getattr(sampler, "indices", None), Indices):
        next(iter(sampler))
        once, Indices.asked = Indices.asked, 0
    for batch in DataLoader(tensors, sampler=sampler, batch_size=2): pass
    LENGTHS = globals().get("LENGTHS", []) + [slot().pulse.loaders[0][3]]
say(lengths=LENGTHS, once=once, asked=Indices.asked)
"""


def test_the_length_of_what_a_sampler_draws_from(tmp_path: Path) -> None:
    """It is known where no code of the user's has to be run for it."""
    (rank,) = run(tmp_path, SAMPLERS)

    assert rank.said == {"lengths": [3, 4, -1], "once": rank.said["once"], "asked": rank.said["once"]}
