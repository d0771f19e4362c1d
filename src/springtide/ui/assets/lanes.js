// The heat map: a lane for each instance, a cell for each bucket. A bucket that gets another owner moves to another lane.
import { h } from "./dom.js";
import { count, listed, moment, percent, plural, rate, size } from "./format.js";
import { scaleOf, timeTicks } from "./charts.js";

const PLAIN = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];
const OWNERS = [...PLAIN, ...PLAIN.map((c) => `color-mix(in oklab, ${c} 50%, var(--surface))`), ...PLAIN.map((c) => `color-mix(in oklab, ${c} 55%, var(--ink))`)];
export const ownerColour = (i) => OWNERS[i % OWNERS.length];

/** From cold to blazing, by a share of the most. */
function heat(share) {
  const s = Math.sqrt(Math.min(1, Math.max(0, share)));
  return s < .55 ? `color-mix(in oklab, var(--warm) ${(s / .55 * 100).toFixed(0)}%, var(--cold))` : `color-mix(in oklab, var(--blaze) ${((s - .55) / .45 * 100).toFixed(0)}%, var(--warm))`;
}

export const MODES = {
  load: { label: "load", values: (b) => (b.load.length ? b.load : b.rows), format: (b, v) => (b.load.length ? percent(v, 1) : rate(v)) },
  state: { label: "state", values: (b) => b.bytes, format: (_, v) => size(v) },
  owner: { label: "owner", values: (b) => b.owners, format: (_, v) => `instance ${v}` },
};

/** Draw the buckets; `chosen` is a set of those that a person has picked. */
export function lanes(b, mode, width, chosen, pick) {
  const { values, format } = MODES[mode], found = values(b), most = Math.max(...found, 1e-12);
  const label = width < 560 ? 66 : 108, room = width - label - 4;
  const cell = Math.max(9, Math.min(20, Math.floor(Math.sqrt(room * 26 / Math.max(1, b.owners.length / b.instances))) )), pitch = cell + 3;
  const perRow = Math.max(1, Math.floor(room / pitch));
  const owned = Array.from({ length: b.instances }, () => []);
  b.owners.forEach((owner, bucket) => owned[owner]?.push(bucket));
  const places = new Map();
  let y = 0;
  const rows = owned.map((own, instance) => {
    const high = Math.max(1, Math.ceil(own.length / perRow)) * pitch + 10, top = y;
    own.forEach((bucket, i) => places.set(bucket, [label + (i % perRow) * pitch, top + 6 + Math.floor(i / perRow) * pitch]));
    y += Math.max(high, 44);
    return h("div", { class: "lane", key: `lane${instance}`, style: { top: `${top}px`, height: `${Math.max(high, 44)}px` } },
      h("div", null, h("b", null, `${width < 560 ? "" : "instance "}${instance}`), h("br"), `${percent(b.utilisation[instance])}${width < 560 ? "" : " busy"}`));
  });
  const cells = b.owners.map((owner, bucket) => {
    const [left, top] = places.get(bucket) ?? [0, 0], value = found[bucket];
    const says = `bucket ${bucket}, instance ${owner}${mode === "owner" || value === undefined ? "" : `, ${MODES[mode].label} ${format(b, value)}`}`;
    return h("button", {
      key: `b${bucket}`, class: "cell", type: "button", title: says, "aria-label": says, "aria-pressed": chosen.has(bucket) ? "true" : "false", tabindex: bucket === 0 || chosen.has(bucket) ? 0 : -1, "data-bucket": bucket,
      style: { width: `${cell}px`, height: `${cell}px`, transform: `translate(${left}px, ${top}px)`, "background-color": mode === "owner" ? ownerColour(owner) : heat((value ?? 0) / most) },
      on: { click: () => pick(bucket), keydown: walk },
    });
  });
  return h("div", { class: "lanes", key: "lanes", role: "group", "aria-label": lanesWords(b, mode), style: { height: `${y}px` } }, rows, cells);
}

/** Arrow keys go from bucket to bucket. */
function walk(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -16, ArrowDown: 16 }[event.key];
  if (!step) return;
  event.preventDefault();
  const to = event.currentTarget.parentNode.querySelector(`[data-bucket="${Number(event.currentTarget.dataset.bucket) + step}"]`);
  if (to) to.focus();
}

export function lanesWords(b, mode) {
  const { values, format, label } = MODES[mode], found = values(b);
  const each = b.utilisation.map((u, i) => `instance ${i} ${percent(u)}`);
  const busy = b.instances <= 8 ? listed(each) : `between ${percent(Math.min(...b.utilisation))} and ${percent(Math.max(...b.utilisation))}`;
  const begin = `${plural(b.owners.length, "bucket")} on ${plural(b.instances, "instance")}; busy: ${busy}.`;
  if (mode === "owner" || !found.length) return begin;
  const order = found.map((v, i) => [v, i]).sort((p, q) => q[0] - p[0]).slice(0, 3).filter(([v]) => v > 0);
  const sum = found.reduce((p, q) => p + q, 0);
  return order.length ? `${begin} Most ${label}: ${listed(order.map(([v, i]) => `bucket ${i} (instance ${b.owners[i]}, ${format(b, v)}, ${percent(v / sum)} of all)`))}.` : begin;
}

/** The hottest buckets through time: how thick says how much, the colour says whose it is. */
export function hottest(found, width) {
  const left = 84, right = 10, row = 22, height = found.buckets.length * row + 26;
  const begin = found.t[0], end = found.t.at(-1), x = scaleOf(begin, end, left, width - right);
  const most = Math.max(...found.buckets.flatMap((b) => b.share), 1e-9);
  return h("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": hottestWords(found) },
    found.buckets.map((b, r) => h("g", { key: `h${b.bucket}` },
      h("text", { x: left - 10, y: r * row + 15, "text-anchor": "end" }, `bucket ${b.bucket}`),
      h("line", { class: "axis", x1: left, x2: width - right, y1: r * row + 11, y2: r * row + 11 }),
      runs(b, found.t).map(([from, to, owner, share]) => {
        const thick = 1.5 + 16 * Math.sqrt(share / most);
        return h("rect", { x: x(from), y: r * row + 11 - thick / 2, width: Math.max(1, x(to) - x(from) + .5), height: thick, fill: ownerColour(owner) }, h("title", null, `bucket ${b.bucket}: instance ${owner}, ${percent(share, 1)} of the rows, ${moment(to)}`));
      }))),
    timeTicks(begin, end, Math.max(2, Math.floor(width / 120))).map(([at, text]) => h("text", { x: x(at), y: height - 4, "text-anchor": "middle" }, text)));
}

function runs(b, t) {
  const found = [];
  for (let i = 1; i < t.length; i++) found.push([t[i - 1], t[i], b.owner[i], b.share[i]]);
  return found;
}

export function hottestWords(found) {
  const moves = found.buckets.flatMap((b) => b.owner.slice(1).map((o, i) => [b, i + 1, b.owner[i], o]).filter(([, , from, to]) => from !== to));
  const top = found.buckets[0];
  const begin = top ? `The hottest is bucket ${top.bucket} with up to ${percent(Math.max(...top.share), 1)} of the rows. ` : "";
  if (!moves.length) return `${begin}None of these ${count(found.buckets.length)} changed its owner in this time.`;
  const last = moves.toSorted((p, q) => found.t[p[1]] - found.t[q[1]]).slice(-3).map(([b, i, from, to]) => `bucket ${b.bucket} went from instance ${from} to ${to} at ${moment(found.t[i])}`);
  return `${begin}${plural(moves.length, "time")} one of these changed its owner; lately ${listed(last)}.`;
}
