"""Golden cases of runs that are slow: who is late and why, and what has changed for all."""

from __future__ import annotations

import dataclasses

from expected import Expected, place
from scenes import HOST, STEP, T, rank

from safelaunch.model import Case, GpuState, Incident, Location, Tenant
from safelaunch.model.slow import Busy, DevicePace, NodeUsage, Pace, Slowness, Stalled, Standing, Usage

DATA = Location("/home/ada/project/data.py", 33, "__getitem__")
PLOT = Location("/home/ada/project/plot.py", 18, "redraw")
RANKS = 4
ALL = tuple(range(8))


def case(slow: Slowness, gpus: tuple[GpuState, ...] = (), world_size: int = RANKS) -> Case:
    incident = Incident("slow", 0, slow.ranks, T)
    return Case(incident, HOST, world_size, tuple(map(rank, range(RANKS))), 0, now=T + 3, gpus=gpus, slow=slow)


def straggler(late: int = 2, **facts: object) -> Slowness:
    """One rank needs 90 ms of its own for a step, the others 30 ms."""
    paces = tuple(
        Pace(n, 0.09, 0.03, 18, 20, 0.01, 0.02, 0.01, 0.02)
        if n == late
        else Pace(n, 0.03, 0.03, 0, 20, 0.01, 0.65, 0.01, 0.02)
        for n in range(RANKS)
    )
    slow = Slowness("straggler", (late,), "step", 41, T - 10, 120, 0.092, 0.032, source="calls", paces=paces)
    return dataclasses.replace(
        slow, usage=tuple(Usage(n, 10.0, 0.3, 0.01, 2.0, cpus=ALL) for n in range(RANKS)), **facts
    )  # type: ignore[arg-type]


def one(slow: Slowness, late: int = 2, **facts: object) -> Slowness:
    """What /proc says of the one that is late."""
    usage = tuple(dataclasses.replace(u, **facts) if u.rank == late else u for u in slow.usage)  # type: ignore[arg-type]
    return dataclasses.replace(slow, usage=usage)


def beside(slow: Slowness, cores: tuple[float, ...], stands: Standing) -> Slowness:
    """What threads beside the main one use, and where the late rank stands."""
    usage = tuple(
        dataclasses.replace(u, cpu=u.cpu + used, beside=used) for u, used in zip(slow.usage, cores, strict=True)
    )
    return dataclasses.replace(slow, usage=usage, standing=(stands,))


def loading(slow: Slowness, late: int = 2, workers: int = 0, share: float = 0.7) -> Slowness:
    paces = tuple(
        dataclasses.replace(p, loading=share if p.rank == late else 0.01, workers=workers) for p in slow.paces
    )
    return dataclasses.replace(slow, paces=paces)


def everybody(
    kind: str = "slower", *, before: float = 0.01, now: float = 0.01, cpu: float = 0.1, **facts: object
) -> Slowness:
    """Steps take 95 ms and took 34; `before` and `now` are the seconds that threads wait for a CPU."""
    paces = tuple(Pace(n, None, None, 0, 0, 0.01, 0.05, 0.01, 0.05) for n in range(RANKS))
    slow = Slowness(kind, (), "step", 60, T - 12, 190, 0.095, 0.034, paces=paces)  # type: ignore[arg-type]
    return dataclasses.replace(
        slow,
        usage=tuple(Usage(n, 10.0, cpu, now, 2.0, cpus=ALL) for n in range(RANKS)),
        usage_before=tuple(Usage(n, 10.0, 0.25, before, 2.0, cpus=ALL) for n in range(RANKS)),
        node=NodeUsage(10.0, 8, 0.5),
        **facts,
    )


def waiting() -> Slowness:
    """All ranks wait in collectives for most of their time, which they did not before."""
    slow = everybody()
    return dataclasses.replace(slow, paces=tuple(dataclasses.replace(one, waiting=0.7) for one in slow.paces))


def paces(
    own: float = 0.02, host: float = 0.001, call: float = 0.004, late: int | None = None, late_host: float = 0.001
) -> tuple[DevicePace, ...]:
    """What the GPUs do in a step; one may be late, and needs 70 ms more of its own than the others, which wait."""
    more = 0.0 if late is None else 0.07
    return tuple(
        DevicePace(n, own + more, late_host, call) if n == late else DevicePace(n, own, host, call + more)
        for n in range(RANKS)
    )


def on_gpus(late: int = 2, late_host: float = 0.001) -> Slowness:
    """One GPU comes last to the calls: 90 ms of its own in a step, the others 20."""
    devices = paces(late=late, late_host=late_host)
    return dataclasses.replace(straggler(late), source="device", on_device=True, devices=devices)


def gpu(index: int, **facts: object) -> GpuState:
    return GpuState(index, ranks=(index,), busy_percent=95, **facts)  # type: ignore[arg-type]


def cases() -> dict[str, tuple[Case, Expected]]:
    """All of them by name."""
    return {**cases_of_hosts(), **cases_of_gpus()}


def cases_of_gpus() -> dict[str, tuple[Case, Expected]]:
    """Where calls end on GPUs."""
    all_ = dataclasses.replace(everybody(), on_device=True, devices_before=paces(), devices=paces(call=0.075))
    hosted = on_gpus(late_host=0.075)
    sleeps = (Standing(2, STEP, 6, 6, 0, 0, 0, call="clock_nanosleep"), Standing(0, None, 0, 6, 6, 0, 0))
    waits = (Standing(2, STEP, 6, 6, 0, 0, 0, call="futex"),)
    idle = tuple(dataclasses.replace(gpu(n), busy_percent=30 if n == 2 else 100) for n in range(RANKS))
    never_idle = tuple(dataclasses.replace(gpu(n), busy_percent=100) for n in range(RANKS))
    braked = tuple(gpu(n, held_back=("hardware power brake",) if n == 2 else ()) for n in range(RANKS))
    capped = tuple(
        gpu(n, clock_mhz=700 if n == 2 else 1900, limited_by=("software power cap",) if n == 2 else ())
        for n in range(RANKS)
    )
    shared = tuple(gpu(n, tenants=(Tenant(4242, None, 1 << 30, "python"),) if n == 2 else ()) for n in range(RANKS))
    down = tuple(gpu(n, links=18, links_down=3 if n == 1 else 0) for n in range(RANKS))
    mixed = tuple(dataclasses.replace(one, mixed=True) for one in on_gpus().devices)
    waiting = tuple(Pace(n, None, None, 0, 0, 0.0, 0.1 if n == 2 else 0.7, 0.0, 0.1) for n in range(RANKS))
    return {
        "slow-gpu-that-is-held-back": (
            case(on_gpus(), braked),
            Expected(
                "SL503",
                (2,),
                mentions=(
                    "GPU 2 of rank 2 is slow since step 41: it computes for 90.0 ms of a step",
                    "(4.5 times); its clocks are held back: hardware power brake",
                    "its host had enqueued all of it",
                ),
            ),
        ),
        "slow-gpu-with-a-power-cap": (
            case(on_gpus(), capped),
            Expected("SL503", (2,), mentions=("its clock is lower (software power cap)", "700 MHz", "1900 MHz")),
        ),
        "slow-gpu-that-another-process-uses": (
            case(on_gpus(), shared),
            Expected("SL503", (2,), mentions=("another process uses it", "python (pid 4242)")),
        ),
        # All are held back, and one is slower nevertheless: that is not why.
        "slow-gpu-among-hot-ones": (
            case(on_gpus(), tuple(gpu(n, held_back=("software thermal slowdown",)) for n in range(RANKS))),
            Expected("SL503", (2,), confidence="medium", mentions=("or has more to compute than its peers",)),
        ),
        "slow-gpu-of-ddp-of-which-nvml-says-nothing": (
            case(dataclasses.replace(on_gpus(), devices=mixed)),
            Expected(
                "SL503",
                (2,),
                confidence="medium",
                mentions=("the GPU of rank 2", "in its forward passes", "NVML says nothing of it"),
            ),
        ),
        "slow-gpu-for-which-its-host-waits": (
            case(dataclasses.replace(hosted, standing=waits), never_idle),
            Expected("SL503", (2,), confidence="medium", mentions=("GPU 2 of rank 2", "it is never idle (100 % busy")),
        ),
        "slow-host-whose-gpu-idles": (
            case(dataclasses.replace(hosted, standing=waits), idle),
            Expected("SL503", (2,), place(STEP), mentions=("its GPU waits for its host", "75.0 ms", "busy 30 %")),
        ),
        "slow-host-that-sleeps": (
            case(dataclasses.replace(hosted, standing=sleeps)),
            Expected("SL503", (2,), place(STEP), mentions=("its GPU waits for its host", "sleeps or waits")),
        ),
        "slow-host-by-its-loader": (
            case(loading(hosted, workers=0)),
            Expected("SL503", (2,), mentions=("its GPU waits for its host", "waits for its DataLoader")),
        ),
        "slow-host-or-gpu": (
            case(dataclasses.replace(hosted, standing=waits)),
            Expected(
                "SL503", (2,), place(STEP), confidence="medium", mentions=("by its host or by its GPU cannot be told",)
            ),
        ),
        "slower-by-a-link": (
            case(all_, down),
            Expected(
                "SL504",
                mentions=(
                    "the GPUs are longer in the calls",
                    "75.0 ms of a step, 4.0 ms before",
                    "GPU 1 (rank 1): 3 of 18 NVLinks are down",
                    "come to their calls together",
                ),
            ),
        ),
        "slower-by-a-link-that-nobody-knows": (
            case(all_),
            Expected("SL504", mentions=("the GPUs are longer in the calls", "which link is slow is not known")),
        ),
        "slower-by-a-link-since-before-anybody-looked": (
            case(dataclasses.replace(all_, devices_before=())),
            Expected("SL504", mentions=("the GPUs are longer in the calls", "34.0 ms for all of it before")),
        ),
        "slower-by-the-hosts-of-all-gpus": (
            case(dataclasses.replace(all_, devices=paces(own=0.09, host=0.08))),
            Expected("SL504", mentions=("the hosts enqueue work later", "waits 80.0 ms of a step", "1.0 ms before")),
        ),
        "slower-by-the-gpus-themselves": (
            case(dataclasses.replace(all_, devices=paces(own=0.09))),
            Expected("SL504", mentions=("the GPUs compute longer",)),
        ),
        "slower-on-gpus-that-could-not-be-followed": (
            case(dataclasses.replace(all_, devices=(), unknown="the GPU of rank 1 could not be followed")),
            Expected("SL504", confidence="low", mentions=("who is late cannot be told: the GPU of rank 1",)),
        ),
        # Hosts wait in no collective with NCCL: that one of them does not, says nothing.
        "slower-on-gpus-whose-hosts-wait": (
            case(dataclasses.replace(all_, unknown="the GPUs were not looked at", devices=(), paces=waiting)),
            Expected("SL504", confidence="low"),
        ),
    }


def cases_of_hosts() -> dict[str, tuple[Case, Expected]]:
    """Where ranks wait in their calls."""
    plain = straggler()
    shares = one(plain, queued=0.55, cpus=(3,))
    busy = Busy(777, "stress", 1.0, (3,))
    worker = Standing(2, DATA, 6, 6, 0, 5, 0, worker=True)
    peer_worker = Standing(0, None, 0, 6, 6, 0, 0, worker=True)
    hungry = dataclasses.replace(everybody("loader"), since=None, begun=None)
    hungry = dataclasses.replace(hungry, paces=tuple(Pace(n, loading=0.8, workers=2) for n in range(RANKS)))
    awaited = tuple(
        Pace(n, loading=0.0, waiting=0.1 if n == 2 else 0.7, loading_before=0.0, waiting_before=0.1)
        for n in range(RANKS)
    )
    return {
        "slow-rank-that-all-others-wait-for": (
            case(one(dataclasses.replace(everybody(), paces=awaited), cpu=0.95)),
            Expected("SL503", (2,), confidence="medium", mentions=("for 70% of each step", "they waited 10% before")),
        ),
        "slow-rank-that-sleeps": (
            case(dataclasses.replace(plain, standing=(Standing(2, STEP, 5, 6, 1, 0, 0),))),
            Expected("SL503", (2,), place(STEP), mentions=("since step 41", "3.0 times", "sleeps or waits")),
        ),
        "slow-rank-that-shares-its-only-cpu": (
            case(dataclasses.replace(shares, others=(busy,))),
            Expected("SL503", (2,), mentions=("may only use CPU 3", "stress (pid 777)", "does not get the CPU")),
        ),
        "slow-rank-that-computes-more": (
            case(dataclasses.replace(one(plain, cpu=0.95), standing=(Standing(2, STEP, 6, 6, 0, 6, 0),))),
            Expected("SL503", (2,), place(STEP), mentions=("computes more",)),
        ),
        "slow-rank-whose-threads-compute": (
            case(
                beside(plain, (0.01, 0.01, 0.8, 0.02), Standing(2, STEP, 6, 6, 0, 6, 0, others=6, beside=PLOT, taken=5))
            ),
            Expected("SL503", (2,), place(PLOT), mentions=("threads of its own", "6 other threads of rank 2")),
        ),
        "slow-rank-whose-threads-run-now-and-then": (
            case(
                beside(plain, (0.01, 0.01, 0.8, 0.02), Standing(2, STEP, 6, 6, 0, 6, 0, others=1, beside=PLOT, taken=1))
            ),
            Expected("SL503", (2,), place(STEP), mentions=("computes more",)),
        ),
        # Threads of torch's own compute in native code: no thread of them keeps the main one from running.
        "slow-rank-that-stalls-now-and-then": (
            case(dataclasses.replace(plain, stalled=Stalled(2, 28, 14.0, 0.5, 60.0))),
            Expected("SL503", (2,), confidence="medium", mentions=("28 stalls of up to 500 ms", "14 s of 60 s (23%)")),
        ),
        "slow-rank-that-has-become-so-bit-by-bit": (
            case(dataclasses.replace(plain, grows=True, usual_s=0.024, since=None, begun=None)),
            Expected("SL503", (2,), confidence="medium", mentions=("slower, bit by bit", "24.0 ms")),
        ),
        "slow-rank-whose-own-children-take-its-cpu": (
            case(dataclasses.replace(shares, children=(Busy(881, "python", 0.9, (3,), of=2),))),
            Expected(
                "SL503", (2,), mentions=("its own child processes take its CPU", "python (pid 881) uses 0.9 cores")
            ),
        ),
        "slow-rank-with-native-threads": (
            case(beside(plain, (0.01, 0.01, 0.8, 0.02), Standing(2, STEP, 6, 6, 0, 6, 0))),
            Expected("SL503", (2,), place(STEP), mentions=("computes more",)),
        ),
        "slow-rank-whose-memory-is-on-disk": (
            case(one(plain, faults=900.0, swapped_bytes=3 << 30)),
            Expected("SL503", (2,), mentions=("major page faults", "3072 MiB")),
        ),
        "slow-rank-in-a-file-system": (
            case(dataclasses.replace(plain, standing=(Standing(2, DATA, 4, 6, 0, 0, 5, file="/data/shard-3"),))),
            Expected("SL503", (2,), place(DATA), mentions=("uninterruptible sleep", "/data/shard-3")),
        ),
        "slow-rank-with-a-hot-gpu": (
            case(plain, tuple(gpu(n, held_back=("HW thermal slowdown",) if n == 2 else ()) for n in range(RANKS))),
            Expected("SL503", (2,), mentions=("GPU 2 (rank 2) is held back: HW thermal slowdown",)),
        ),
        "slow-rank-by-its-loader": (
            case(dataclasses.replace(loading(plain, workers=2), standing=(worker, peer_worker))),
            Expected("SL503", (2,), place(DATA), mentions=("waits for its DataLoader", "its workers compute")),
        ),
        # The batches of the others are ready because they wait for the last one: their loaders are as slow.
        "slow-loaders-of-all-and-one-is-last": (
            case(
                dataclasses.replace(loading(plain, workers=2), standing=(worker, dataclasses.replace(worker, rank=0)))
            ),
            Expected("SL506", (), place(DATA), mentions=("no time to spare", "are as busy")),
        ),
        "slow-rank-for-no-reason-that-is-seen": (
            case(
                one(dataclasses.replace(plain, paces=tuple(dataclasses.replace(p, waiting=None) for p in plain.paces)))
            ),
            Expected("SL503", (2,), confidence="medium", mentions=("nothing that is watched tells why",)),
        ),
        "slow-rank-of-one-node-of-two": (
            case(one(plain, cpu=0.95), world_size=8),
            Expected("SL503", (2,), confidence="medium", mentions=("other nodes are not known",)),
        ),
        # Four ranks on two CPUs: one of them comes off worst, and nothing is wrong with it.
        "slow-on-a-crowded-node": (
            case(
                dataclasses.replace(
                    plain, usage=tuple(Usage(n, 10.0, 0.4, 0.95 if n == 2 else 0.4, cpus=(0, 1)) for n in range(RANKS))
                )
            ),
            Expected("SL502", confidence="medium"),
        ),
        "slower-because-of-neighbours": (
            case(everybody(now=0.6, others=(Busy(901, "make", 6.5),))),
            Expected("SL504", mentions=("since step 60", "95.0 ms, 34.0 ms before", "make (pid 901)", "0.60 s")),
        ),
        "slower-because-all-wait": (
            case(waiting()),
            Expected(
                "SL504", confidence="high", mentions=("the collectives themselves take longer", "check the network")
            ),
        ),
        "slower-because-all-of-this-node-wait": (
            case(waiting(), world_size=8),
            Expected("SL504", confidence="medium", mentions=("the network is slower, or a rank of another node",)),
        ),
        "slower-with-one-gpu-held-back": (
            case(everybody(), tuple(gpu(n, held_back=("SW power cap",) if n == 1 else ()) for n in range(RANKS))),
            Expected("SL504", (1,), confidence="medium", mentions=("GPU 1 (rank 1) is held back",)),
        ),
        "slower-and-nobody-knows-why": (
            case(everybody(unknown="ranks send messages to one another", standing=(Standing(0, STEP, 5, 6),))),
            Expected("SL504", (), place(STEP), confidence="low", mentions=("cannot be told: ranks send messages",)),
        ),
        "slower-because-each-step-is-more-work": (
            case(everybody(cpu=0.26)),
            Expected("SL504", confidence="low", mentions=("since step 60", "each rank computes more for it")),
        ),
        "slower-bit-by-bit": (
            case(dataclasses.replace(everybody(cpu=0.26), grows=True)),
            Expected(
                "SL504",
                confidence="low",
                mentions=("bit by bit", "95.0 ms, 34.0 ms at first", "computes more for it"),
            ),
        ),
        "slow-from-the-first-step": (
            case(
                dataclasses.replace(everybody("below"), since=None, begun=None, usual_s=None, expect_s=0.03),
                tuple(dataclasses.replace(gpu(n), busy_percent=12) for n in range(RANKS)),
            ),
            Expected("SL505", mentions=("95.0 ms, and the profile expects 30.0 ms", "4 of 4 GPUs are idle")),
        ),
        "slow-loaders-of-all": (
            case(dataclasses.replace(hungry, standing=(worker, dataclasses.replace(worker, rank=0)))),
            Expected("SL506", (), place(DATA), mentions=("all 4 ranks wait 80%", "num_workers=2; its workers compute")),
        ),
    }
