"""Which nodes of a directed graph reach one another."""

from __future__ import annotations


def strongly_connected(edges: dict[int, list[int]]) -> dict[int, int]:
    """For each node a number, shared with those that it reaches and that reach it (Tarjan, without recursion)."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    open_: list[int] = []
    for start in edges:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        open_.append(start)
        path = [(start, iter(edges[start]))]
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    while open_[-1] != node:
                        component[open_.pop()] = number[node]
                    component[open_.pop()] = number[node]
            elif following not in number:
                number[following] = low[following] = len(number)
                open_.append(following)
                path.append((following, iter(edges[following])))
            elif following not in component:
                low[node] = min(low[node], number[following])
    return component
