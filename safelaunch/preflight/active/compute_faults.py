"""What is wrong with devices that have worked: from what they did to findings. Pure: no I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from safelaunch.model import Finding
from safelaunch.preflight.active.compute_report import Device
from safelaunch.preflight.active.progress import exit_text
from safelaunch.preflight.check import ok, unchecked
from safelaunch.sizes import plural

OUT_OF_MEMORY = "out of memory"

# What to do about errors of CUDA and torch by a part of their text.
REMEDIES = {
    "no kernel image": "install a build of torch that supports this GPU",
    "driver on your system is too old": "have the driver updated (admin), or install torch for an older CUDA",
    "driver version is insufficient": "have the driver updated (admin), or install torch for an older CUDA",
    "not compiled with cuda": "install a build of torch with CUDA",
    "system not yet initialized": "start the fabric manager (admin): systemctl restart nvidia-fabricmanager",
    "busy or unavailable": "end the process that holds it (nvidia-smi shows it), or choose others",
}
SICK_GPU = "have it reset or the node rebooted (admin); until then leave it out with CUDA_VISIBLE_DEVICES"
SICK_CPU = "see `dmesg`, and whether the node has CPU time and memory left"
UNTRUSTED = {True: f"do not train on it: {SICK_GPU}", False: "do not train on this node: have CPU and memory tested"}


def broken(devices: Sequence[Device], deadline_s: float) -> Iterator[Finding]:
    """SL150: those that did not come to the end."""
    faults = [_broken(device, deadline_s) for device in devices if not device.did.done]
    if not faults:
        yield ok("SL150", f"{count(devices)} computed what was asked")
    elif len(faults) == len(devices) > 1 and len({(text, because) for _, text, because in faults}) == 1:
        _, text, because = faults[0]
        everywhere = f"all {len(devices)} {noun(devices[0])}s"
        yield _sick(f"{everywhere} {text}", because, everywhere, gpu=bool(devices[0].model))
    else:
        for device, text, because in faults:
            if OUT_OF_MEMORY in because.lower():
                yield unchecked("SL150", f"{device.name} had not the memory for the probe (see SL109)", because)
            else:
                yield _sick(f"{device.name} {text}", because, device.where, gpu=bool(device.model))


def _broken(device: Device, deadline_s: float) -> tuple[Device, str, str]:
    did = device.did
    if did.failed_s is not None:
        how = "failed" if did.error else f"died with {exit_text(did.exit_code)}"
        return device, f"{how} {did.where}", did.error or did.last_words
    verb = "finish" if did.entered > did.left else "reach"
    return device, f"did not {verb} {did.steps[did.left]} within {deadline_s:g} s", ""


def _sick(summary: str, because: str, where: str, *, gpu: bool) -> Finding:
    known = (remedy for part, remedy in REMEDIES.items() if part in because.lower())
    return Finding(
        code="SL150",
        severity="error",
        summary=summary,
        because=(*([because] if because else []), "this was a test of seconds, without your program"),
        remedy=next(known, SICK_GPU if gpu else SICK_CPU),
        where=where,
    )


# -------------------------------------------------------------------------------------- silent corruption


def corrupt(devices: Sequence[Device]) -> Iterator[Finding]:
    """SL152: those whose product differs from that of the others, or from their own."""
    judged = [device for device in devices if device.did.hashes]
    if not judged:
        yield unchecked("SL152", "the results were not compared", "no device came to the end of the GEMM (see SL150)")
        return
    fickle = [device for device in judged if len(set(device.did.hashes)) > 1]
    steady = [device for device in judged if device not in fickle]
    for device in fickle:
        often = Counter(device.did.hashes).most_common(1)[0][1]
        times = len(device.did.hashes)
        yield _corrupt(
            [device],
            f"{device.name} computed different results from the same numbers",
            f"{times - often} of {times} times the product of two matrices differed from the others",
        )
    yield from _vote(steady)
    if not fickle and len({device.did.hashes[0] for device in steady}) == 1:
        times = sum(len(device.did.hashes) for device in judged)
        peers = "" if len(judged) > 1 else ", with no peer to compare with"
        yield ok("SL152", f"{count(judged)} computed the same product {times} times{peers}")


def _vote(devices: Sequence[Device]) -> Iterator[Finding]:
    """Each device has one result; the majority is right."""
    parties: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        parties[device.did.hashes[0]].append(device)
    if len(parties) < 2:
        return
    largest = max(parties.values(), key=len)
    if 2 * len(largest) > len(devices):
        for device in devices:
            if device not in largest:
                yield _corrupt(
                    [device],
                    f"{device.name} computed a wrong result",
                    f"the product of two matrices differs from that of {len(largest)} of {count(devices)}",
                )
        return
    agreed = " | ".join(", ".join(device.name for device in party) for party in parties.values())
    if len(devices) == 2:
        what = f"{devices[0].name} and {devices[1].name} computed different results: cannot tell which of the two"
    else:
        what = f"{count(devices)} computed {len(parties)} different results, none by most of them: cannot tell which"
    yield _corrupt(devices, f"{what} is wrong", f"the products of the same two matrices agree only among: {agreed}")


def _corrupt(devices: Sequence[Device], summary: str, because: str) -> Finding:
    return Finding(
        code="SL152",
        severity="error",
        summary=summary,
        because=(because, "all numbers are whole and small: their product has no rounding that could differ"),
        remedy=UNTRUSTED[bool(devices[0].model)],
        where=", ".join(device.where for device in devices),
    )


# ------------------------------------------------------------------------------------------------- words


def noun(device: Device) -> str:
    return "GPU" if device.model else "rank"


def count(devices: Sequence[Device]) -> str:
    """`8 GPUs`, `1 rank`."""
    return plural(len(devices), noun(devices[0])) if devices else "no device"
