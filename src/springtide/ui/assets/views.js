// The views: each makes elements of what is known. `page` has now, the past and what a person chose; `go` makes addresses.
import { brush, chart, pins, told } from "./charts.js";
import { readOnly } from "./api.js";
import { h } from "./dom.js";
import { ago, clock, count, day, eventTime, extra, listed, minute, moment, NONE, percent, plural, rate, seconds, short, size } from "./format.js";
import { hottest, hottestWords, lanes, lanesWords, MODES, ownerColour } from "./lanes.js";
import { plan, planWords } from "./plan.js";

const COLOURS = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];
const card = (key, title, side, ...content) => h("section", { class: "card", key, "aria-label": title }, h("header", null, h("h2", null, title), side && h("div", { class: "side" }, side)), content);
const figure = (key, name, value, more, hot) => h("div", { key, class: hot ? "hot" : "" }, h("dt", null, name), h("dd", null, value), more && h("dd", null, more));
const table = (label, head, rows, right = []) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", null,
  h("thead", null, h("tr", null, head.map((text, i) => h("th", { scope: "col", class: right.includes(i) ? "right" : "" }, text)))),
  h("tbody", null, rows)));
const cells = (values, right = [], key = null, props = {}) => h("tr", { key, ...props }, values.map((v, i) => i === 0 ? h("th", { scope: "row", class: right.includes(i) ? "right" : "" }, v) : h("td", { class: right.includes(i) ? "right" : "" }, v)));
const bar = (share) => h("span", { class: share >= .9 ? "bar hot" : "bar", "aria-hidden": "true" }, h("i", { style: { width: `${Math.min(100, Math.max(0, (share ?? 0) * 100)).toFixed(1)}%` } }));
const live = (page) => page.now.state === "running" && page.now.commands && !readOnly;
const button = (label, act, props = {}) => h("button", { type: "button", on: { click: act }, ...props }, label);

// ── overview ──

export function overview(page) {
  const { now } = page, f = now.overview;
  if (now.epoch === null) return [card("none", "Nothing yet", null, h("p", { class: "words" }, now.state === "running" ? "The query runs and has not committed its first epoch." : "No epoch is committed yet: there is nothing to show."))];
  return [
    now.unaccounted.length > 0 && h("div", { key: "wrong", class: "note bad", role: "alert" }, "Rows are not accounted for: ", now.unaccounted.join("; ")),
    h("dl", { class: "figures", key: "figures" },
      figure("in", "rows in", rate(f.read), `${count(f.rows_in)} in all`),
      figure("out", "rows out", rate(f.out), `${count(f.rows_out)} in all`),
      figure("backlog", "backlog", short(f.backlog), f.backlog ? `${rate(f.arriving)} arriving` : "nothing waits", f.backlog > 0),
      figure("latency", "latency", seconds(f.p50), `p95 ${seconds(f.p95)}, p99 ${seconds(f.p99)}`),
      figure("epoch", "epoch time", seconds(f.seconds), `median ${seconds(f.median)}`),
      figure("state", "state", size(f.state_bytes), f.slots ? plural(f.slots, "slot") : plural(now.subqueries.reduce((n, q) => n + q.instances, 0), "instance")),
      figure("late", "late, rejected", `${short(f.late)}, ${short(f.rejected)}`, f.late + f.rejected ? "see sources" : "every row came in", f.late + f.rejected > 0)),
    card("graph", "The query", null, plan(now.graph, now.subqueries, page.width, () => page.go("instances")), h("p", { class: "words" }, planWords(now.graph, now.subqueries))),
    page.series && page.series.t.length > 1 && card("load", "Load and instances", h("a", { href: page.go("time") }, "over time"), small(page)),
    h("div", { class: "two", key: "two" },
      card("decisions", "Last decisions", h("a", { href: page.go("decisions") }, "all decisions"), story(page, (page.decisions ?? []).slice(0, 4), "Nothing was changed so far.")),
      card("events", "Events", null, events(now.events, 8))),
  ];
}

function small(page) {
  const view = viewOf(page, page.series), s = page.series, marks = marksOf(page);
  return [
    chart({ title: "Rows per second", t: s.t, view, format: short, marks, height: 120, lines: [{ name: "arriving", values: s.arriving, colour: "var(--c0)", area: true }, { name: "read", values: s.read, colour: "var(--ink)" }], words: told("Rows read", s.t, s.read, rate) }),
    chart({ title: "Instances", t: s.t, view, format: (v) => short(v), marks, height: 96, lines: parts(s, (part, name, colour) => ({ name, values: part.instances, colour, stepped: true })), words: instancesWords(s) }),
    pins({ marks, view, href: (m) => page.go("decisions", m.id) }),
  ];
}

const parts = (s, make) => Object.entries(s.subqueries).map(([name, part], i) => make(part, name, COLOURS[i % COLOURS.length]));
const instancesWords = (s) => `Instances at the end: ${listed(Object.entries(s.subqueries).map(([n, p]) => `${n} ${p.instances.at(-1) ?? NONE}`))}.`;
const marksOf = (page) => (page.decisions ?? []).map((d) => ({ at: d.at, id: d.id, text: `${d.subquery} ${d.change}` }));

function viewOf(page, series) {
  const begin = series.t[0] ?? 0, end = series.t.at(-1) ?? 1;
  return { begin: page.range?.[0] ?? begin, end: Math.max(page.range?.[1] ?? end, (page.range?.[0] ?? begin) + 1e-3), width: page.width, hover: page.hover, onHover: page.onHover };
}

// ── over time ──

export function time(page) {
  const s = page.series, { now } = page;
  if (!s || !s.t.length) return [card("none", "Over time", null, h("p", { class: "empty" }, "Nothing was measured yet."))];
  const view = viewOf(page, s), marks = marksOf(page), lines = { t: s.t, view, marks };
  const inSpan = marks.filter((m) => m.at >= view.begin && m.at <= view.end).length;
  const spans = [["all", null], ["1 h", 3600], ["15 min", 900], ["5 min", 300], ["1 min", 60]];
  return [card("time", "Over time", h("div", { class: "choice", role: "group", "aria-label": "Span" }, spans.map(([label, length]) => button(label, () => page.chooseSpan(length), { "aria-pressed": page.span === length ? "true" : "false", key: label }))),
    page.all && brush({ t: page.all.t, values: page.all.arriving, whole: [page.all.t[0], page.all.t.at(-1)], view, choose: page.chooseRange }),
    h("p", { class: "words", key: "span" }, `${plural(s.epochs, "epoch")} from ${moment(view.begin)} to ${moment(view.end)}, ${plural(inSpan, "decision")}.`, now.whole ? "" : " Earlier epochs are being read."),
    chart({ ...lines, title: "Rows per second", format: short, lines: [{ name: "arriving", values: s.arriving, colour: "var(--c0)", area: true }, { name: "read", values: s.read, colour: "var(--ink)" }, { name: "out", values: s.out, colour: "var(--c2)" }], words: told("Rows read", s.t, s.read, rate) }),
    chart({ ...lines, title: "Backlog, rows", format: short, height: 100, lines: [{ name: "waiting", values: s.backlog, colour: "var(--c1)", area: true }], words: Math.max(...s.backlog) > 0 ? told("Rows that waited", s.t, s.backlog, count) : "Backlog: no row had to wait for the next epoch." }),
    chart({ ...lines, title: "Latency", format: seconds, lines: [{ name: "p99", values: s.p99, colour: "var(--c4)", dashed: true }, { name: "p95", values: s.p95, colour: "var(--c1)" }, { name: "p50", values: s.p50, colour: "var(--c0)" }], words: told("Latency, 95 of 100 rows under", s.t, s.p95, seconds) }),
    chart({ ...lines, title: "Instances", format: (v) => short(v), height: 110, lines: parts(s, (part, name, colour) => ({ name, values: part.instances, colour, stepped: true })), words: instancesWords(s) }),
    chart({ ...lines, title: "Utilisation", format: percent, top: 1, lines: parts(s, (part, name, colour) => ({ name, values: part.mean, low: part.low, high: part.high, colour })), words: `Utilisation at the end: ${listed(Object.entries(s.subqueries).map(([n, p]) => `${n} ${percent(p.mean.at(-1))}`))}; the bands reach from the least to the most busy instance.` }),
    chart({ ...lines, title: "Epoch time", format: seconds, height: 100, lines: [{ name: "seconds", values: s.seconds, colour: "var(--c3)" }], words: told("Epoch time", s.t, s.seconds, seconds) }),
    pins({ marks, view, href: (m) => page.go("decisions", m.id) }))];
}

// ── instances ──

export function instances(page) {
  return page.now.subqueries.map((q) => {
    const given = { step: q.name, instances: q.instances, most: q.most };
    const acts = live(page) && [button("Scale", () => page.ask("scale", given)), q.stateful && button("Rebalance", () => page.ask("rebalance", given))];
    const most = q.each.reduce((best, e, i) => (e.utilisation > (q.each[best]?.utilisation ?? -1) ? i : best), 0);
    return card(q.name, q.name, acts,
      h("dl", { class: "figures plainer", key: "f" },
        figure("i", "instances", count(q.instances), q.coming ? `${q.coming} are coming` : q.most ? `at most ${count(q.most)}` : "no bound"),
        figure("u", "utilisation", percent(q.utilisation), `deviates by ${percent(q.deviation, 1)}`, q.utilisation >= .9),
        figure("r", "rows in", rate(q.rate_in), `${rate(q.rate_out)} out`),
        figure("s", "state", q.stateful ? size(q.state_bytes) : NONE, q.stateful ? `${short(q.state_rows)} rows in ${plural(q.segments, "segment")}` : "keeps nothing")),
      q.each.length ? [
        h("div", { class: "gauges", key: "g", role: "img", "aria-label": q.each.map((e, i) => `instance ${i} ${percent(e.utilisation)} busy`).join(", ") }, q.each.map((e, i) => h("div", { class: "gauge", key: i }, h("span", null, i), bar(e.utilisation), h("span", null, percent(e.utilisation))))),
        h("details", { key: "d" }, h("summary", null, "In figures"), table(`Instances of ${q.name}`, ["instance", "busy", "rows in", "rows out", "waits", "buckets"],
          q.each.map((e, i) => cells([`${i}`, percent(e.utilisation), rate(e.rate_in), rate(e.rate_out), percent(e.wait), e.buckets ?? NONE], [1, 2, 3, 4, 5], i)), [1, 2, 3, 4, 5])),
        h("p", { class: "words", key: "w" }, `${plural(q.instances, "instance")} of ${q.name}, ${percent(q.utilisation)} busy on average; instance ${most} is the busiest with ${percent(q.each[most].utilisation)}.`),
      ] : h("p", { class: "words", key: "w" }, "Nothing was measured with this number of instances yet."));
  });
}

// ── buckets ──

export function buckets(page) {
  const stateful = page.now.subqueries.filter((q) => q.buckets > 0);
  if (!stateful.length) return [card("none", "Buckets", null, h("p", { class: "empty" }, "This query keeps no state: it has no buckets."))];
  const b = page.buckets, name = page.subquery, load = stateful.find((q) => q.name === name);
  const choose = stateful.length > 1 && h("select", { "aria-label": "Step", value: name, on: { change: (e) => page.chooseSubquery(e.target.value) } }, stateful.map((q) => h("option", { value: q.name, selected: q.name === name }, q.name)));
  const modes = h("div", { class: "choice", role: "group", "aria-label": "Colour by" }, Object.entries(MODES).map(([mode, { label }]) => button(label, () => page.set({ mode }), { key: mode, "aria-pressed": page.mode === mode ? "true" : "false" })));
  const picked = [...page.picked].sort((p, q) => p - q);
  const acts = live(page) && load && page.moment === null && [
    picked.length > 0 && button(`Move ${plural(picked.length, "bucket")}`, () => page.ask("move", { step: name, buckets: picked, instances: load.instances }, () => page.set({ picked: new Set() })), { key: "move" }),
    button("Rebalance", () => page.ask("rebalance", { step: name, instances: load.instances }), { key: "rebalance" })];
  return [
    card("buckets", `Buckets of ${name}`, [choose, modes, acts],
      b ? [
        h("p", { class: "words", key: "w0" }, `After epoch ${count(b.epoch)}, ${moment(b.time)}. A lane is an instance, a cell a bucket; one that gets another owner moves to another lane.${live(page) ? " Pick buckets to move them." : ""}`),
        page.mode !== "owner" && h("div", { class: "scale", key: "scale" }, "cold", h("span", { class: "ramp" }), `hot: ${MODES[page.mode].format(b, Math.max(...MODES[page.mode].values(b), 0))}`),
        lanes(b, page.mode, page.width, page.picked, page.pick),
        h("p", { class: "words", key: "w" }, lanesWords(b, page.mode)),
      ] : h("p", { class: "empty" }, "Nobody has measured these buckets yet."),
      page.all && page.all.t.length > 1 && h("div", { class: "time", key: "time" },
        h("label", { for: "when" }, "Time"),
        h("input", { id: "when", type: "range", min: 0, max: page.all.t.length - 1, value: String(page.moment ?? page.all.t.length - 1), "aria-valuetext": page.moment === null ? "now" : moment(page.all.t[page.moment]), on: { input: (e) => page.chooseMoment(Number(e.target.value)) } }),
        h("span", null, page.moment === null ? "now" : moment(page.all.t[page.moment])),
        button("Now", () => page.chooseMoment(null), { disabled: page.moment === null }))),
    page.hottest && page.hottest.t.length > 1 && card("hottest", "The hottest buckets", null,
      h("p", { class: "words", key: "w0" }, "Each line is a bucket: the thicker, the larger its share of all rows; the colour is its owner's."),
      hottest(page.hottest, page.width),
      h("ul", { class: "legend", key: "legend" }, owners(page.hottest).map((o) => h("li", { key: o }, h("i", { class: "dot", style: { color: ownerColour(o) } }), `instance ${o}`))),
      h("p", { class: "words", key: "w" }, hottestWords(page.hottest))),
  ];
}

const owners = (found) => [...new Set(found.buckets.flatMap((b) => b.owner))].sort((p, q) => p - q).slice(0, 12);

// ── decisions ──

export function decisions(page) {
  const { now } = page, all = page.decisions ?? [];
  const done = all.filter((d) => d.extra !== null), extras = done.map((d) => d.extra).sort((p, q) => p - q);
  const words = all.length ? `${plural(all.length, "decision")}, ${count(all.filter((d) => d.kind === "scale").length)} of them another number of instances.${done.length ? ` The epoch that switched took ${extra(extras[Math.floor(extras.length / 2)])} more than usual in the median, ${extra(extras.at(-1))} at most; ${size(done.reduce((n, d) => n + (d.bytes ?? 0), 0))} of state changed hands.` : ""}` : "Nothing was changed so far.";
  return [
    now.paused && h("div", { key: "paused", class: "note hot" }, "Elasticity is paused: nothing changes but by hand."),
    card("decisions", "Decisions", null, h("p", { class: "words", key: "w" }, words), story(page, all, null)),
    card("refusals", "Refused", null, now.refusals.length
      ? table("Refusals", ["time", "subquery", "rule", "what and why"], now.refusals.map((r, i) => h("tr", { key: `${r.time}${r.subquery}${i}` }, h("td", null, moment(r.time)), h("th", { scope: "row" }, r.subquery), h("td", null, r.rule), h("td", { class: "wide" }, `${r.wanted}; ${r.why}${r.times > 1 ? ` (${r.times} times)` : ""}`))))
      : h("p", { class: "empty" }, now.elastic ? "No proposal of the policy was refused." : "This query is not elastic: nobody proposes anything.")),
    card("events", "Events and faults", null, events(now.events)),
  ];
}

function story(page, found, empty) {
  if (!found.length) return empty && h("p", { class: "empty" }, empty);
  return h("ol", { class: "story" }, found.map((d) => h("li", { key: d.id, id: `d-${d.id}`, class: page.marked === d.id ? "mark" : "" },
    h("time", null, moment(d.at), d.decided_after !== null && h("div", null, `after epoch ${count(d.decided_after)}`)),
    h("div", null,
      h("div", { class: "what" }, d.subquery, " ", d.before !== d.after ? h("span", { class: "change" }, d.before, " → ", h("span", { class: "to" }, plural(d.after, "instance"))) : d.change, d.protocol !== "virtual" ? ` (${d.protocol})` : ""),
      h("div", { class: "why" }, d.reason, d.trigger && h("span", null, " – ", d.trigger.text)),
      h("div", { class: "cost" }, d.state === "done"
        ? [h("span", null, "took ", h("b", null, seconds(d.took))), h("span", null, "extra ", h("b", null, extra(d.extra))), d.buckets > 0 && h("span", null, h("b", null, `${count(d.moved)}/${count(d.buckets)}`), " buckets, ", h("b", null, size(d.bytes))), h("span", null, `since epoch ${count(d.epoch)}`), d.waited > 0 && h("span", null, `waited ${seconds(d.waited)} for executors`)]
        : h("span", null, d.state))))));
}

/** How events begin that are decisions and refusals, which are told elsewhere. */
const TOLD = /^(scaled|moved|rebalanced|replaced|refused for) /;

function events(all, most = Infinity) {
  const found = all.filter((e) => !TOLD.test(e.text)).slice(0, most);
  if (!found.length) return h("p", { class: "empty" }, "Nothing else happened lately.");
  return h("ol", { class: "story" }, found.map((e) => h("li", { key: `${e.at}${e.text}` }, h("time", null, moment(e.at)), h("div", { class: "why" }, e.text))));
}

// ── sources ──

export function sources(page) {
  const { now } = page, times = now.sources.filter((s) => s.time !== null && !s.ended).map((s) => [s.time, s.name]);
  const slowest = times.length ? times.reduce((a, b) => (b[0] < a[0] ? b : a)) : null;
  return [
    ...now.sources.map((s) => card(s.name, s.name, s.ended && h("span", { class: "pill" }, "ended"),
      h("dl", { class: "figures plainer", key: "f" },
        figure("a", "accepted", short(s.accepted), `${rate(s.arriving)} arriving`),
        figure("b", "backlog", short(s.backlog), "rows wait", s.backlog > 0),
        figure("l", "late", short(s.late), percent(s.late / Math.max(1, s.accepted + s.late + s.rejected), 2), s.late > 0),
        figure("r", "rejected", short(s.rejected), percent(s.rejected / Math.max(1, s.accepted + s.late + s.rejected), 2), s.rejected > 0),
        s.files && figure("f", "files read", count(s.files.read + s.files.changed), `${count(s.files.changed)} changed since, ${count(s.files.gone)} gone unread`)),
      s.slowest.length > 0 && [h("h3", { key: "h" }, "Stream times"), table(`Stream times of ${s.name}`, ["physical stream", "time (UTC)", "behind the greatest"],
        s.slowest.map((p) => cells([p.name, p.ended ? "ended" : eventTime(p.time), p.ended || s.greatest === null || p.time === null ? NONE : seconds(Math.max(0, s.greatest - p.time))], [2], p.name)), [2])],
      h("p", { class: "words", key: "w" }, sourceWords(s)))),
    now.sources.length > 1 && card("merged", "Merged time", null, h("p", { class: "words" }, slowest ? `${slowest[1]} is farthest behind of the sources, at ${eventTime(slowest[0])}: steps that read it wait for it.` : "Every source has ended: nothing is waited for.")),
    card("refused", "Rows that did not come in", null, refused(page)),
  ];
}

function sourceWords(s) {
  if (s.ended) return `${s.name} has ended after ${plural(s.accepted, "row")} that came in; its time is past every event.`;
  if (s.time === null) return `No row of ${s.name} had a time yet.`;
  const more = s.streams > s.slowest.length ? ` The ${s.slowest.length} farthest behind are shown.` : "";
  const held = s.held_by ? `; the physical stream ${s.held_by.stream} holds it back by ${seconds(s.held_by.seconds)}` : s.streams > 1 ? "; no stream holds the others back" : "";
  return `The merged time of ${plural(s.streams, "physical stream")} is ${eventTime(s.time)}${held}.${more}`;
}

function refused(page) {
  const found = page.refused ?? [];
  const counted = page.now.overview.late + page.now.overview.rejected;
  if (!counted) return h("p", { class: "empty" }, "Every row that was read came in: none was late, none was rejected.");
  if (!found.length) return h("p", { class: "empty" }, `${plural(page.now.overview.late, "row")} came late and ${count(page.now.overview.rejected)} were rejected; no samples of them were kept.`);
  return [h("p", { class: "words", key: "w" }, `${count(page.now.overview.late)} late, ${count(page.now.overview.rejected)} rejected; these are samples.`),
    table("Samples of rows that did not come in", ["time", "source", "", "why", "row"], found.map((r, i) => h("tr", { key: `${r.at}${i}` }, h("td", null, moment(r.at)), h("th", { scope: "row" }, r.source), h("td", null, r.outcome), h("td", { class: "wide" }, r.reason), h("td", { class: "wide mono" }, r.row))))];
}

// ── state ──

export function state(page) {
  const { now } = page, found = page.state, step = page.step;
  if (!now.stateful.length) return [card("none", "State", null, h("p", { class: "empty" }, "No step of this query remembers anything."))];
  const layout = now.stateful.find((s) => s.name === step) ?? now.stateful[0];
  const asked = page.keys ?? {};
  return [card("state", "State", null,
    h("form", { class: "row", key: "form", on: { submit: (e) => { e.preventDefault(); const form = new FormData(e.currentTarget); page.browse({ step, kind: form.get("kind"), keys: Object.fromEntries(layout.keys.map((k) => [k, form.get(`key:${k}`)])) }); } } },
      h("label", null, "Step", h("select", { name: "step", value: step, on: { change: (e) => page.browse({ step: e.target.value, kind: null, keys: {} }) } }, now.stateful.map((s) => h("option", { value: s.name, selected: s.name === step }, s.name)))),
      found && found.kinds.length > 1 && h("label", null, "Kind", h("select", { name: "kind", value: found.kind }, found.kinds.map((k) => h("option", { value: k, selected: k === found.kind }, k)))),
      layout.keys.map((k) => h("label", { key: k }, k, h("input", { name: `key:${k}`, type: "search", placeholder: "any", value: asked[k] ?? "", autocomplete: "off" }))),
      h("button", { class: "first" }, "Show")),
    page.stateError && h("p", { class: "note bad", key: "e" }, page.stateError),
    found && [h("p", { class: "words", key: "w" }, `${found.step} remembers ${plural(found.found, "row")}${Object.values(asked).some(Boolean) ? " with these keys" : ""} after epoch ${count(found.epoch)}${found.found > found.rows.length ? `; the first ${count(found.rows.length)} are shown` : ""}.`),
      found.rows.length > 0 && table(`State of ${found.step}`, found.columns.map((c) => c.name), found.rows.map((row, i) => h("tr", { key: i }, row.map((value, j) => h(j ? "td" : "th", { scope: j ? null : "row", class: `${found.columns[j].right ? "right" : ""}${value === null ? " null" : ""}` }, value ?? "null")))), found.columns.map((c, i) => (c.right ? i : -1)))])];
}

// ── epochs ──

export function epochs(page) {
  const { now } = page, kept = page.epochs ?? [], s = page.series;
  const act = now.commands && !readOnly && now.state !== "gone" && button("Keep a savepoint", () => page.ask("savepoint", {}));
  const row = (e, first) => cells([first, moment(e.at), seconds(e.seconds), count(e.rows), count(e.published), size(e.new_bytes), size(e.bytes), count(e.segments)], [0, 2, 3, 4, 5, 6, 7], first);
  const head = (first) => [first, "committed", "took", "rows in", "rows out", "state written", "state", "segments"], right = [0, 2, 3, 4, 5, 6, 7];
  return [
    s && s.t.length > 1 && card("times", "How long epochs take", null, chart({ title: "Epoch time", t: s.t, view: viewOf(page, s), format: seconds, marks: marksOf(page), lines: [{ name: "seconds", values: s.seconds, colour: "var(--c3)" }], words: told("Epoch time", s.t, s.seconds, seconds) })),
    card("epochs", "Epochs that are kept", act, kept.length
      ? [h("p", { class: "words", key: "w" }, `${plural(now.measured, "epoch")} measured; the last ${count(kept.length)} are kept, and a start can go back to each.`), table("Epochs", head("epoch"), kept.map((e) => row(e, count(e.epoch))), right)]
      : h("p", { class: "empty" }, "No epoch is committed yet.")),
    card("savepoints", "Savepoints", null, now.savepoints.length ? table("Savepoints", head("savepoint"), now.savepoints.map((e) => row(e, e.name)), right.slice(1)) : h("p", { class: "empty" }, "There are none. A savepoint keeps an epoch for good.")),
  ];
}

// ── all checkpoints ──

export function list(page) {
  const { list } = page;
  return [card("list", `Checkpoints in ${list.title}`, null, list.checkpoints.length
    ? [h("p", { class: "words", key: "w" }, `${plural(list.checkpoints.length, "checkpoint")}, ${count(list.checkpoints.filter((c) => c.state === "running").length)} of them running.`),
      table("Checkpoints", ["query", "", "epoch", "last epoch", "instances", "place"], list.checkpoints.map((c) => h("tr", { key: c.key },
        h("th", { scope: "row" }, h("a", { href: `#/${c.key}/overview` }, c.query)), h("td", null, pill(c.state)), h("td", { class: "right" }, c.epoch === null ? NONE : count(c.epoch)),
        h("td", null, c.at === null ? NONE : ago(c.at)), h("td", null, listed(Object.entries(c.instances).map(([n, i]) => `${n} ${i}`))), h("td", { class: "mono" }, c.place))), [2])]
    : h("p", { class: "empty" }, "There are none in this folder."))];
}

const SAID = { running: "running", ended: "ended with its input", stopped: "stopped", waiting: "not started", gone: "gone" };
export const pill = (state) => h("span", { class: `pill ${state}`, "data-state": state }, SAID[state] ?? state);
