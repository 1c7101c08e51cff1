"""The style sheet of a report."""

from __future__ import annotations

STYLE = """
:root{--ink:#1d2430;--soft:#5b6675;--line:#dde2e9;--paper:#fff;--band:#f5f7fa;--good:#1d7a4d;--bad:#b3372b;
  --open:#8a6500}
*{box-sizing:border-box}
body{margin:0;background:var(--band);color:var(--ink);font:15px/1.55 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 60px;background:var(--paper)}
h1{font-size:26px;line-height:1.2;margin:14px 0 4px}
h2{font-size:19px;margin:38px 0 8px}
p{max-width:76ch;margin:8px 0}
.owner{background:#8f1d1d;color:#fff;padding:8px 14px;border-radius:4px;font-weight:600;font-size:14px}
.soft{color:var(--soft)}
.answer{border-left:5px solid var(--soft);background:var(--band);padding:12px 18px;margin:18px 0}
.answer.proposal{border-color:var(--good)}
.answer.none{border-color:var(--bad)}
.answer.cannot{border-color:var(--open)}
.answer strong{font-size:17px;font-weight:600}
pre{background:#1d2430;color:#eef2f7;padding:10px 14px;border-radius:4px;overflow-x:auto;
  font:13px/1.5 ui-monospace,monospace}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(430px,1fr));gap:20px}
figure{margin:0;max-width:640px}
svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
svg text.label{font-size:12.5px;fill:var(--ink)}
.grid{stroke:var(--line);fill:none}
.bar{stroke-width:1;fill:none;opacity:.55}
.limit{stroke:var(--bad);stroke-width:1.6;fill:none}
.control{stroke:var(--soft);stroke-width:1.4;stroke-dasharray:5 4;fill:none}
.ring{fill:none;stroke:var(--ink);stroke-width:1.6}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);max-width:none}
.legend svg{width:13px;height:13px;display:inline-block;vertical-align:-2px;margin-right:6px;fill:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;width:100%}
th,td{padding:5px 4px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;
  font-variant-numeric:tabular-nums}
th{font-weight:600;vertical-align:bottom;border-bottom:2px solid var(--ink)}
td.l,th.l{text-align:left;padding-left:8px}
tr.chosen td{background:#e9f5ee}
tr.quiet td{color:var(--soft)}
td small{color:var(--soft);font-size:11px}
.met{color:var(--good)}
.missed{color:var(--bad)}
.open{color:var(--open)}
.samples{display:flex;flex-wrap:wrap;gap:20px 26px}
.samples figcaption{font-size:12.5px;color:var(--soft);max-width:40ch;margin-bottom:5px}
.samples img{image-rendering:pixelated;display:block;border:1px solid var(--line)}
ul{max-width:76ch;padding-left:20px}
li{margin:4px 0}
@media print{main{max-width:none}body{background:#fff}}
"""
