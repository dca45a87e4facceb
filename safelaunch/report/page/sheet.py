"""The style of the page: light and dark as the reader has it, and on paper."""

SHEET = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --dim: #5b6570; --line: #d5dae0; --soft: #f4f6f8;
  --bad: #b3261e; --bad-soft: #fdecea; --call: #3b7dd8; --inside: #e08a00; --phase: #7a52c7; --quiet: #c9ced6; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e4e7eb; --dim: #98a2ad; --line: #343b44;
  --soft: #1d2228; --bad: #ff8a80; --bad-soft: #3a1c1b; --call: #6ea8ff; --inside: #ffb74d; --phase: #b39ddb;
  --quiet: #4a525c; } }
@media print { :root { --back: #fff; --text: #000; --dim: #444; --line: #bbb; --soft: #f6f6f6; --bad: #a00;
  --bad-soft: #fbeaea; --call: #2b66b8; --inside: #b86e00; --phase: #5e3ba5; --quiet: #bbb; }
  section, .stack { break-inside: avoid-page; } main { max-width: none; padding: 0; } nav { display: none; }
  .drawing svg { max-width: 100%; height: auto; } pre { white-space: pre-wrap; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 21px; line-height: 1.35; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 34px 0 8px; border-bottom: 1px solid var(--line); padding-bottom: 4px; }
h3 { font-size: 14px; margin: 16px 0 6px; }
p { margin: 6px 0; }
nav a { margin-right: 14px; color: var(--call); }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: 10px 12px; margin: 6px 0;
  overflow-x: auto; font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre.verdict { border-left: 5px solid var(--bad); background: var(--bad-soft); white-space: pre-wrap; font-size: 14px;
  overflow-wrap: anywhere; }
pre.none { border-left-color: var(--call); background: var(--soft); }
section { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; min-width: 40px; }
thead th { color: var(--dim); font-weight: 600; white-space: nowrap; }
.facts td { font-family: ui-monospace, Menlo, Consolas, monospace; }
tr.culprit td { background: var(--bad-soft); font-weight: 600; }
tr.focus td { background: var(--soft); font-weight: 600; }
.dim { color: var(--dim); font-size: 13px; }
.own { font-weight: 700; } .library { color: var(--dim); }
summary { cursor: pointer; margin: 8px 0; }
li.error strong { color: var(--bad); } li.warning strong, li.unchecked strong { color: var(--inside); }
.drawing { overflow-x: auto; }
svg { font: 13px system-ui, sans-serif; } svg text { fill: var(--text); } svg text.dim { fill: var(--dim); }
svg.hidden { position: absolute; }
svg .strong { font-weight: 700; }
rect.plain { fill: var(--soft); stroke: var(--dim); } rect.guilty { fill: var(--bad-soft); stroke: var(--bad); }
.arrow { fill: none; stroke: var(--dim); stroke-width: 1.6; } .head { fill: var(--dim); }
.name { text-anchor: end; } .tick { text-anchor: middle; font-size: 11px; fill: var(--dim); }
.grid { stroke: var(--line); } .incident { stroke: var(--bad); stroke-dasharray: 5 4; }
g.culprit text.name { fill: var(--bad); }
rect.life { fill: var(--line); } rect.quiet { fill: var(--quiet); } rect.call { fill: var(--call); }
rect.inside { fill: var(--inside); } rect.phase { fill: var(--phase); } rect.end { fill: var(--bad); }
path.end { stroke: var(--bad); stroke-width: 2.5; fill: none; }
.key { display: inline-block; width: 12px; height: 10px; margin-left: 8px; background: var(--quiet); }
.key.call { background: var(--call); } .key.inside { background: var(--inside); }
.key.phase { background: var(--phase); } .key.end { background: var(--bad); }
"""
