// The query as a graph: subqueries as boxes with their steps, rates on the edges.
import { h } from "./dom.js";
import { listed, percent, plural, rate, shortened } from "./format.js";

const WIDE = 236, HEAD = 58, STEP = 25, FOOT = 12, GAP = 26, BETWEEN = 118, BELOW = 64;

function levels(graph) {
  const level = new Map(graph.subqueries.map((q) => [q.name, 0]));
  for (let round = 0; round < graph.subqueries.length; round++)
    for (const e of graph.exchanges) if (level.has(e.from) && level.has(e.to)) level.set(e.to, Math.max(level.get(e.to), level.get(e.from) + 1));
  return level;
}

function placed(graph, upright) {
  const level = levels(graph), columns = [];
  for (const q of graph.subqueries) (columns[level.get(q.name)] ??= []).push(q);
  const boxes = new Map();
  let along = 4, across = 0;
  for (const column of columns.filter(Boolean)) {
    let side = 4, deep = 0;
    for (const q of column) {
      const high = HEAD + Math.max(q.steps.length, 0) * STEP + FOOT;
      boxes.set(q.name, upright ? { x: side, y: along, high, q } : { x: along, y: side, high, q });
      side += upright ? WIDE + GAP : high + GAP;
      deep = Math.max(deep, upright ? high : WIDE);
    }
    across = Math.max(across, side - GAP);
    along += deep + (upright ? BELOW : BETWEEN);
  }
  along -= upright ? BELOW : BETWEEN;
  return { boxes, width: upright ? across + 4 : along + 4, height: (upright ? along : across) + 4 };
}

/** Draw it; `loads` has the subqueries as they are now, `width` is what there is room for. */
export function plan(graph, loads, width, href) {
  const columns = new Set(levels(graph).values()).size;
  const upright = width < columns * WIDE + (columns - 1) * BETWEEN && width < 760;
  const drawn = placed(graph, upright);
  const load = new Map(loads.map((l) => [l.name, l]));
  const top = Math.max(...graph.exchanges.map((e) => e.rate ?? 0), 1);
  return h("div", { class: "plan", key: "plan" },
    h("svg", { width: drawn.width, height: drawn.height, viewBox: `0 0 ${drawn.width} ${drawn.height}`, role: "group", "aria-label": "The query as a graph" },
      graph.exchanges.map((e, i) => wire(e, i, drawn.boxes.get(e.from), drawn.boxes.get(e.to), upright, top, graph.exchanges)),
      [...drawn.boxes.values()].map((b) => box(b, load.get(b.q.name), graph, href))));
}

function wire(e, i, from, to, upright, top, all) {
  if (!from || !to) return null;
  const same = all.filter((o) => o.from === e.from && o.to === e.to), turn = (same.indexOf(e) - (same.length - 1) / 2) * 22;
  const [x1, y1] = upright ? [from.x + WIDE / 2 + turn, from.y + from.high] : [from.x + WIDE, from.y + HEAD / 2 + turn];
  const [x2, y2] = upright ? [to.x + WIDE / 2 + turn, to.y - 3] : [to.x - 3, to.y + HEAD / 2 + turn];
  const d = upright ? `M${x1} ${y1}C${x1} ${y1 + BELOW / 2} ${x2} ${y2 - BELOW / 2} ${x2} ${y2}` : `M${x1} ${y1}C${x1 + BETWEEN / 2} ${y1} ${x2 - BETWEEN / 2} ${y2} ${x2} ${y2}`;
  const thick = 1.5 + 3.5 * Math.sqrt((e.rate ?? 0) / top), text = rate(e.rate), mx = (x1 + x2) / 2, my = (y1 + y2) / 2;
  return h("g", { key: `e${i}` },
    h("path", { class: "flow", d, "stroke-width": thick.toFixed(1) }),
    h("path", { d: upright ? `M${x2 - 5} ${y2 - 5}L${x2} ${y2 + 2}L${x2 + 5} ${y2 - 5}` : `M${x2 - 5} ${y2 - 5}L${x2 + 2} ${y2}L${x2 - 5} ${y2 + 5}`, class: "wire" }),
    h("rect", { class: "behind", x: mx - text.length * 3.7 - 5, y: my - 10, width: text.length * 7.4 + 10, height: 20, rx: 6 }),
    h("text", { class: "rate", x: mx, y: my + 4, "text-anchor": "middle" }, text));
}

function box({ x, y, high, q }, load, graph, href) {
  const used = load?.utilisation ?? null, link = document.createElementNS("http://www.w3.org/2000/svg", "a");
  link.itsKey = q.name;
  link.setAttribute("href", href(q.name));
  link.setAttribute("aria-label", inWords(q, load));
  const bar = WIDE - 32 - 52;
  link.append(
    h("rect", { class: "box", x, y, width: WIDE, height: high, rx: 10 }),
    h("text", { class: "name", x: x + 16, y: y + 24 }, shortened(q.name, 18)),
    h("text", { x: x + WIDE - 16, y: y + 24, "text-anchor": "end" }, load ? plural(load.instances, "instance") : ""),
    h("rect", { class: "track", x: x + 16, y: y + 36, width: bar, height: 6, rx: 3 }),
    h("rect", { class: used >= .9 ? "filled hot" : "filled", x: x + 16, y: y + 36, width: bar * Math.min(1, used ?? 0), height: 6, rx: 3 }),
    h("text", { x: x + WIDE - 16, y: y + 43, "text-anchor": "end" }, percent(used)),
    ...q.steps.map((step, i) => {
      const at = y + HEAD + i * STEP + 12, edge = graph.edges.find((e) => e.in === q.name && (e.to === step.name || (step.kind === "source" && e.from === step.name)) && e.rate !== null);
      const inner = h("g", null,
        h("circle", { cx: x + 20, cy: at - 4, r: step.name === q.head ? 4 : 2.5, fill: step.name === q.head ? "var(--accent)" : "var(--faint)" }),
        h("text", { class: "step", x: x + 32, y: at }, shortened(step.name, 17)),
        h("text", { x: x + WIDE - 16, y: at, "text-anchor": "end" }, edge && ["sink", "source"].includes(step.kind) ? rate(edge.rate) : step.kind),
        h("title", null, step.what || `${step.name}, ${step.kind}`));
      return inner;
    }));
  return link;
}

const inWords = (q, load) => `${q.name}: ${load ? `${plural(load.instances, "instance")}, ${percent(load.utilisation)} busy` : "nothing measured yet"}; steps ${listed(q.steps.map((s) => s.name))}`;

/** Say what the graph shows. */
export function planWords(graph, loads) {
  const load = new Map(loads.map((l) => [l.name, l]));
  const said = graph.subqueries.map((q) => {
    const own = load.get(q.name), out = graph.exchanges.filter((e) => e.from === q.name);
    const to = out.map((e) => `${rate(e.rate)} to ${e.to}`), sinks = graph.edges.filter((e) => e.in === q.name && e.account?.startsWith("sink ")).map((e) => `${rate(e.rate)} to ${e.to}`);
    const busy = own ? ` (${plural(own.instances, "instance")}, ${percent(own.utilisation)} busy)` : "";
    return `${q.name}${busy}${to.length + sinks.length ? ` sends ${listed([...to, ...sinks])}` : ""}`;
  });
  return `${said.join("; ")}.`;
}
