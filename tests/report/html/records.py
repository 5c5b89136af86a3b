"""Records of real runs, and what is made of them."""

from __future__ import annotations

import json
from typing import Any

import surgeon_passes as sp
from surgeon_passes import demo

Record = dict[str, Any]

NASTY = (
    "</script><script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    "\"quoted\" & 'apostrophe' <!--",
    "bell\x07 tab\t line\nend\x00",
    "right \u202e to left \u05d0\u05d1\u05d2",
    "\u4e2d\u6587 {data} &lt;b&gt; \\u003c",
)


def of_demo() -> Record:
    """A run of the embedded network."""
    return sp.optimize(demo.build(), record=True).record()


def of_nasty_names() -> Record:
    """A run of the embedded network whose nodes and tensors are called what a page must not take for markup."""
    proto = demo.build()
    names: dict[str, str] = {}

    def renamed(name: str) -> str:
        if name not in names:
            names[name] = f"{NASTY[len(names) % len(NASTY)]} {len(names)}"
        return names[name]

    graph = proto.graph
    for node in graph.node:
        node.name = renamed(node.name)
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = renamed(value.name)
    proto.producer_name = NASTY[0]
    return sp.optimize(proto, record=True).record()


def many(record: Record, number: int) -> Record:
    """The record with its matches again and again, each in another stage, until there are ``number``."""
    texts = [json.dumps(match) for match in record["matches"] if "stage" in match["root"]]
    found = []
    for place in range(number):
        match = json.loads(texts[place % len(texts)].replace("stage", f"stage{place}."))
        found.append({**match, "number": place})
    return {**record, "matches": found}
