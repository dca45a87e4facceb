"""Names of hosts that could not be resolved: a connection to one of them only times out, and says nothing of that."""

from __future__ import annotations

from dataclasses import replace

from safelaunch.diagnosis.logs.timeline import Candidate, quote
from safelaunch.model.hosts import host_name
from safelaunch.model.logs import LogFacts, Sighting

NAME = "name-unknown"


def with_names(facts: LogFacts, candidates: list[Candidate]) -> list[Candidate]:
    """Candidates, and of those that did not reach a host whose name was unknown before, the name."""
    return [_explained(facts, one) for one in candidates]


def _explained(facts: LogFacts, one: Candidate) -> Candidate:
    said = next((s for s in facts.sightings if _is_before(s, one)), None)
    if said is None:
        return one
    name, error = said.field("name"), said.field("error")
    return replace(
        one,
        what=f"the name {name} could not be resolved ({error}), so nothing was reached there",
        remedy=f"see on this node whether the name is known (getent hosts {host_name(name)}): mend MASTER_ADDR, or "
        "the endpoint, or DNS; a name of a pod is known once its service and the pod are there",
        more=(quote(said.at), *one.more),
    )


def _is_before(said: Sighting, one: Candidate) -> bool:
    near = said.known.name == NAME and said.at.file == one.at.file and said.at.line < one.at.line
    return near and one.code == "SL602" and f"({said.field('name')}, " in one.at.text
