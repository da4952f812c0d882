# Part of CommSched, under the Apache License v2.0 with LLVM Exceptions. See LICENSE for licence information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How the page of a certificate looks: on light and dark grounds, and from 400 pixels on."""

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #24292f; --faint: #59636e; --rule: #d0d7de; --card: #f6f8fa;
  --good: #1a7f37; --part: #9a6700; --bad: #cf222e; --compute: #3b6ea5; --collective: #e8a33d; --waits: #d9534f; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --text: #e6edf3; --faint: #9198a1; --rule: #30363d;
  --card: #161b22; --good: #3fb950; --part: #d29922; --bad: #f85149; --compute: #5b95d6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 3rem; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, Helvetica, Arial, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--rule); }
article + article { margin-top: 4rem; padding-top: 2rem; border-top: 4px double var(--rule); }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
code, pre { font: .9em/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre { background: var(--card); border: 1px solid var(--rule); border-radius: 6px; padding: .75rem;
  white-space: pre-wrap; }
ul { margin: .25rem 0; padding-left: 1.4rem; }
li { margin: .3rem 0; }
.yes li::marker { content: "\\2713\\00a0"; color: var(--good); }
.no li::marker { content: "\\2717\\00a0"; color: var(--bad); }
.verdict { border: 1px solid var(--rule); border-left: 6px solid var(--colour); border-radius: 6px;
  background: var(--card); padding: .75rem 1rem; margin: 1rem 0; }
.verdict strong { color: var(--colour); font-size: 1.15rem; }
.valid { --colour: var(--good); } .part { --colour: var(--part); } .not { --colour: var(--bad); }
.claims { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem; margin: .75rem 0; }
.claims div { border: 1px solid var(--rule); border-radius: 6px; padding: .6rem .8rem; }
.claims dt { color: var(--faint); font-size: .875rem; } .claims dd { margin: 0; font-size: 1.1rem; font-weight: 600; }
.claims dd small { display: block; color: var(--faint); font-size: .8125rem; font-weight: 400; }
.claims .what { margin: .2rem 0 0; color: var(--faint); font-size: .8125rem; font-weight: 400; }
.lane { margin: .4rem 0; font-size: .8125rem; } .lane svg { display: block; width: 100%; height: 24px;
  background: var(--card); border: 1px solid var(--rule); border-radius: 3px; }
.compute { fill: var(--compute); } .collective { fill: var(--collective); }
.wide { stroke: var(--ground); vector-effect: non-scaling-stroke; } .waits { fill: var(--waits); }
.before { fill: var(--rule); } .bound { fill: var(--text); }
.axis { display: flex; justify-content: space-between; font-size: .8125rem; color: var(--faint); }
.legend { font-size: .8125rem; color: var(--faint); } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .35rem;
  vertical-align: -1px; }
footer { margin-top: 2.5rem; padding-top: .75rem; border-top: 1px solid var(--rule); color: var(--faint);
  font-size: .875rem; }
"""
