// Charts over time: lines and areas on one time axis, decisions as marks, a hair line that all charts share, and words for each.
import { h } from "./dom.js";
import { clock, day, minute, moment, plural, seconds } from "./format.js";

const LEFT = 60, RIGHT = 10, TOP = 8, BOTTOM = 20;

/** Round steps of an axis from 0 to `top`. */
export function ticks(top, most = 4) {
  if (!(top > 0)) return [0, 1];
  const rough = top / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let value = 0; value < top + step * 0.999; value += step) found.push(value);
  return found;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

export function timeTicks(begin, end, most) {
  const step = STEPS.find((n) => (end - begin) / n <= most) ?? (end - begin) / most;
  const zone = new Date(begin * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((begin - zone) / step) * step + zone; at <= end; at += step) found.push([at, step < 60 ? clock(at) : step < 86400 ? minute(at) : day(at).slice(5)]);
  return found;
}

export const scaleOf = (from, to, low, high) => (value) => low + ((value - from) / (to - from || 1)) * (high - low);

function path(t, values, x, y, stepped) {
  let d = "", before = null;
  for (let i = 0; i < t.length; i++) {
    const value = values[i];
    if (value === null || value === undefined) { before = null; continue; }
    const px = x(t[i]).toFixed(1), py = y(value).toFixed(1);
    if (before === null) d += `M${px} ${py}`;
    else d += stepped ? `V${py}H${px}` : `L${px} ${py}`;
    before = py;
  }
  return d;
}

function band(t, low, high, x, y) {
  const there = t.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null && low[i] !== undefined && high[i] !== undefined);
  if (!there.length) return "";
  const up = there.map((i) => `${x(t[i]).toFixed(1)} ${y(high[i]).toFixed(1)}`), down = there.reverse().map((i) => `${x(t[i]).toFixed(1)} ${y(low[i]).toFixed(1)}`);
  return `M${up.join("L")}L${down.join("L")}Z`;
}

/**
 * Draw a chart. `lines` have {name, values, colour, stepped, area, low, high, dashed}; `view` has begin, end, width, hover, onHover;
 * `marks` are decisions, {at, id, text}. `words` says what there is to see.
 */
export function chart({ title, t, lines, format, view, marks = [], words, height = 132, top = 0, id }) {
  const { begin, end, width } = view;
  const x = scaleOf(begin, end, LEFT, width - RIGHT);
  const all = lines.flatMap((l) => [...l.values, ...(l.high ?? [])]).filter((v) => v !== null && v !== undefined);
  const steps = ticks(Math.max(top, ...all, 0), height < 110 ? 2 : 4);
  const y = scaleOf(0, steps.at(-1), height - BOTTOM, TOP);
  const shown = lines.filter((l) => l.values.some((v) => v !== null && v !== undefined));
  const place = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const at = begin + ((event.clientX - box.left - LEFT) / (width - LEFT - RIGHT)) * (end - begin);
    view.onHover(Math.min(end, Math.max(begin, at)));
  };
  const near = view.hover === null || !t.length ? null : t.reduce((best, at, i) => (Math.abs(at - view.hover) < Math.abs(t[best] - view.hover) ? i : best), 0);
  return h("figure", { class: "chart", key: id ?? title },
    h("header", null, h("h3", null, title),
      h("ul", { class: "legend" }, shown.map((l) => h("li", { key: l.name }, h("i", { class: l.area ? "area" : "", style: { color: l.colour } }), l.name)))),
    h("svg", {
      width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, tabindex: 0,
      on: {
        pointermove: place, pointerleave: () => view.onHover(null),
        keydown: (event) => {
          const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
          if (!step || !t.length) return;
          event.preventDefault();
          view.onHover(t[Math.min(t.length - 1, Math.max(0, (near ?? t.length - 1) + step))]);
        },
        blur: () => view.onHover(null),
      },
    },
    steps.map((value) => h("g", { key: `y${value}` }, h("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), h("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, format(value).replace(/\.0+(?=\s|$)/, "")))),
    timeTicks(begin, end, Math.max(2, Math.floor(width / 110))).map(([at, text]) => h("text", { key: `x${at}`, x: x(at), y: height - 4, "text-anchor": "middle" }, text)),
    marks.filter((m) => m.at >= begin && m.at <= end).map((m) => h("line", { key: `m${m.id}`, class: "decided", x1: x(m.at), x2: x(m.at), y1: TOP, y2: height - BOTTOM })),
    shown.map((l) => h("g", { key: l.name },
      l.low && h("path", { d: band(t, l.low, l.high, x, y), fill: l.colour, opacity: .15 }),
      l.area && h("path", { d: band(t, l.values.map((v) => (v === null ? null : 0)), l.values, x, y), fill: l.colour, opacity: .22 }),
      h("path", { class: "line", d: path(t, l.values, x, y, l.stepped), stroke: l.colour, "stroke-dasharray": l.dashed ? "4 3" : null, "stroke-width": l.area ? 1 : null }))),
    near !== null && h("line", { key: "hair", class: "hair", x1: x(t[near]), x2: x(t[near]), y1: TOP, y2: height - BOTTOM }),
    near !== null && shown.map((l) => l.values[near] !== null && h("circle", { key: `dot${l.name}`, cx: x(t[near]), cy: y(l.values[near]), r: 3, fill: l.colour }))),
    near !== null && tip(x(t[near]), width, [moment(t[near]), ""], shown.map((l) => [l.name, format(l.values[near])])),
    words && h("figcaption", { class: "words" }, words));
}

function tip(at, width, first, rows) {
  const left = at < width / 2;
  return h("div", { key: "tip", class: "tip", "aria-hidden": "true", style: left ? { left: `${at + 12}px`, top: "1.8rem" } : { right: `${width - at + 12}px`, top: "1.8rem" } },
    h("dl", null, [first, ...rows].map(([name, value]) => [h("dt", null, name), h("dd", null, value)])));
}

/** Draw the decisions on a line of their own, under the charts; each can be reached and opened. */
export function pins({ marks, view, href }) {
  const x = scaleOf(view.begin, view.end, LEFT, view.width - RIGHT);
  const shown = marks.filter((m) => m.at >= view.begin && m.at <= view.end);
  return h("svg", { key: "pins", width: view.width, height: 22, role: "group", "aria-label": `${plural(shown.length, "decision")} in this span` },
    h("line", { class: "axis", x1: LEFT, x2: view.width - RIGHT, y1: 11, y2: 11 }),
    h("text", { x: LEFT - 8, y: 15, "text-anchor": "end" }, "decided"),
    shown.map((m) => {
      const link = document.createElementNS("http://www.w3.org/2000/svg", "a");
      link.setAttribute("href", href(m));
      link.setAttribute("aria-label", `${moment(m.at)}: ${m.text}`);
      link.itsKey = m.id;
      link.append(h("title", null, `${moment(m.at)}: ${m.text}`), h("circle", { class: "pin", cx: x(m.at), cy: 11, r: 5 }));
      return link;
    }));
}

/** Draw all of the past, small, with the span that is looked at; drag to choose another one. */
export function brush({ t, values, whole, view, choose }) {
  const height = 46, { width } = view, [begin, end] = whole;
  const x = scaleOf(begin, end, LEFT, width - RIGHT), y = scaleOf(0, Math.max(...values.filter((v) => v !== null), 1), height - 4, 4);
  const moment_ = (event, box) => Math.min(end, Math.max(begin, begin + ((event.clientX - box.left - LEFT) / (width - LEFT - RIGHT)) * (end - begin)));
  const drag = (event, fixed) => {
    const element = event.currentTarget, box = element.getBoundingClientRect();
    const start = fixed ?? moment_(event, box);
    element.setPointerCapture(event.pointerId);
    const move = (e) => { const to = moment_(e, box); choose(Math.min(start, to), Math.max(start, to), false); };
    const stop = (e) => {
      element.removeEventListener("pointermove", move);
      const to = moment_(e, box);
      if (Math.abs(to - start) < (end - begin) / 200) choose(null, null, true);
      else choose(Math.min(start, to), Math.max(start, to), true);
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", stop, { once: true });
  };
  const nudge = (which) => (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const by = step * (end - begin) / 50;
    const from = which === "from" ? Math.min(Math.max(begin, view.begin + by), view.end - 1e-3) : view.begin;
    const to = which === "to" ? Math.max(Math.min(end, view.end + by), view.begin + 1e-3) : view.end;
    choose(from, to, true);
  };
  const grip = (which, at) => h("rect", {
    key: which, class: "grip", x: x(at) - 3, y: 8, width: 6, height: height - 16, rx: 3, tabindex: 0, role: "slider", "aria-label": which === "from" ? "begin of the span" : "end of the span",
    "aria-valuemin": begin, "aria-valuemax": end, "aria-valuenow": at, "aria-valuetext": moment(at),
    on: { keydown: nudge(which), pointerdown: (event) => { event.stopPropagation(); drag({ currentTarget: event.currentTarget.ownerSVGElement, clientX: event.clientX, pointerId: event.pointerId }, which === "from" ? view.end : view.begin); } },
  });
  const from = Math.max(begin, Math.min(view.begin, end)), to = Math.max(begin, Math.min(view.end, end));
  return h("figure", { class: "chart", key: "brush" },
    h("svg", { class: "brush", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Choose a span: drag over it, or move its ends with the arrow keys", on: { pointerdown: (event) => drag(event) } },
      h("rect", { x: LEFT, y: 2, width: width - LEFT - RIGHT, height: height - 4, fill: "var(--sunken)", rx: 6 }),
      h("path", { d: band(t, values.map(() => 0), values, x, y), fill: "var(--faint)", opacity: .45 }),
      h("text", { x: LEFT - 8, y: height / 2 + 4, "text-anchor": "end" }, "all"),
      h("rect", { class: "chosen", x: x(from), y: 2, width: Math.max(0, x(to) - x(from)), height: height - 4 }),
      grip("from", from), grip("to", to)));
}

/** Say of a line how it went. */
export function told(what, t, values, format) {
  const there = values.map((v, i) => [v, i]).filter(([v]) => v !== null && v !== undefined);
  if (!there.length) return `${what}: nothing was measured.`;
  const [most, at] = there.reduce((a, b) => (b[0] > a[0] ? b : a)), least = Math.min(...there.map(([v]) => v));
  const last = there.at(-1)[0], span = seconds(t.at(-1) - t[0]);
  return `${what}: ${format(last)} at the end of ${span}, between ${format(least)} and ${format(most)}; highest at ${moment(t[at])}.`;
}
