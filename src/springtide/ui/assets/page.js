// The page: what is known, what a person chose, and drawing it again when either changes.
import { follow, get, readOnly, Refusal } from "./api.js";
import { ask } from "./commands.js";
import { h, show } from "./dom.js";
import { ago, count, moment } from "./format.js";
import * as views from "./views.js";

const TABS = [["overview", "Overview"], ["time", "Over time"], ["instances", "Instances"], ["buckets", "Buckets"], ["decisions", "Decisions"], ["sources", "Sources"], ["state", "State"], ["epochs", "Epochs"]];
const head = document.getElementById("head"), tabs = document.getElementById("tabs"), main = document.getElementById("main");

const fresh = () => ({ now: null, series: null, all: null, decisions: null, buckets: null, hottest: null, epochs: null, refused: null, state: null, stateError: null, keys: {}, step: null, subquery: null, mode: "load", picked: new Set(), moment: null, span: null, range: null, hover: null, connected: true, error: null, seen: {} });
const page = { ...fresh(), key: null, view: "overview", marked: null, list: null, width: 800 };

page.go = (view, more) => `#/${page.key}/${view}${more ? `/${encodeURIComponent(more)}` : ""}`;
page.set = (what) => { Object.assign(page, what); draw(); };
page.ask = (name, given, done) => ask(page.key, name, { query: page.now.query, ...given }, () => { done?.(); wanted(true); });
page.onHover = (at) => { if (at !== page.hover) page.set({ hover: at }); };
page.pick = (bucket) => { const picked = new Set(page.picked); if (!picked.delete(bucket)) picked.add(bucket); page.set({ picked }); };
page.chooseSpan = (span) => { page.set({ span, range: null }); wanted(true); };
page.chooseRange = (begin, end, done) => { page.set({ span: begin === null ? null : "own", range: begin === null ? null : [begin, end] }); if (done) wanted(true); };
page.chooseSubquery = (subquery) => { page.set({ subquery, buckets: null, hottest: null, picked: new Set() }); wanted(true); };
page.chooseMoment = (moment_) => { page.set({ moment: moment_ === null || moment_ >= (page.all?.t.length ?? 0) - 1 ? null : moment_ }); wanted(true); };
page.browse = ({ step, kind, keys }) => { page.set({ step, keys, kind, state: null, stateError: null }); wanted(true); };

// ── drawing ──

let asked = false;
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; drawNow(); });
}

function drawNow() {
  page.width = Math.max(260, Math.floor(Math.min(main.clientWidth, 1230) - (window.innerWidth <= 600 ? 61 : 78)));
  const { now } = page;
  document.title = now ? `${now.query} · Springtide` : "Springtide";
  show(head,
    h("a", { class: "mark", href: page.list?.many ? "#/" : page.key ? page.go("overview") : "#/", "aria-label": "Springtide" }, h("img", { src: "/assets/icon.svg", alt: "" }), page.key && now ? null : "Springtide"),
    now && h("div", { class: "who", key: "who" }, h("h1", null, now.query), views.pill(now.state), now.paused && h("span", { class: "pill paused" }, "elasticity paused"), !page.connected && h("span", { class: "pill lost", role: "alert" }, "no connection"),
      now.epoch !== null && h("span", { class: "words" }, `epoch ${count(now.epoch)}, ${now.state === "running" ? moment(now.at) : ago(now.at)}`)),
    now && now.state === "running" && now.commands && !readOnly && h("div", { class: "side", key: "side" },
      now.elastic && (now.paused ? act("Resume", "resume") : act("Pause", "pause")), act("Savepoint", "savepoint"), act("Stop", "stop")),
    readOnly && h("div", { class: "side", key: "ro" }, h("span", { class: "pill plain" }, "read-only")));
  show(tabs, page.key && now && h("ul", null, TABS.map(([view, label]) => h("li", { key: view }, h("a", { href: page.go(view), "aria-current": view === page.view ? "page" : null }, label)))));
  show(main, ...content());
}

const act = (label, name) => h("button", { type: "button", key: name, on: { click: () => page.ask(name, {}) } }, label);

function content() {
  if (page.error) return [h("div", { key: "error", class: "note bad", role: "alert" }, page.error)];
  if (!page.key) return page.list ? views.list(page) : [h("p", { key: "wait", class: "words" }, "Reading …")];
  if (!page.now) return [h("p", { key: "wait", class: "words" }, "Reading the checkpoint …")];
  return [page.now.gone && h("div", { key: "gone", class: "note bad", role: "alert" }, `The checkpoint cannot be read any more: ${page.now.gone}. What you see is the last that was read.`), ...views[page.view](page)].filter(Boolean);
}

// ── what is read ──

const running = new Map();
/** Read something; while it is being read, the last wish waits for its turn. What comes when another checkpoint is shown is dropped. */
async function read(what, path, given, take) {
  if (running.has(what)) { running.set(what, [what, path, given, take]); return; }
  running.set(what, null);
  const key = page.key;
  try {
    const found = await get(`c/${key}/${path}`, given);
    if (key === page.key) { take(found); draw(); }
  } catch (error) {
    if (key === page.key && what === "state") page.set({ stateError: error instanceof Refusal ? error.message : "the server cannot be reached" });
    if (key === page.key && what === "buckets") page.set({ buckets: null });
  } finally {
    const next = running.get(what);
    running.delete(what);
    if (next && key === page.key) read(...next);
  }
}

function spanOf() {
  if (page.range) return { from: page.range[0], to: page.range[1] };
  return page.span && page.now?.until ? { from: page.now.until - page.span } : {};
}

/** Read what the view needs and does not have; all of it again when a person chose something else. */
function wanted(anew = false) {
  const { now, view, seen } = page;
  if (!now) return;
  const fresh = (what, version) => { if (!anew && seen[what] === version) return false; seen[what] = version; return true; };
  const points = Math.min(600, Math.max(120, Math.floor(page.width / 2)));
  if (fresh("decisions", now.decided)) read("decisions", "decisions", null, (found) => { page.decisions = found; });
  if (["overview", "time", "epochs"].includes(view) && fresh(`series ${view}`, now.measured)) read("series", "series", { most: points, ...(view === "time" ? spanOf() : {}) }, (found) => { page.series = found; });
  if (["time", "buckets"].includes(view) && fresh(`all ${view}`, now.measured)) read("all", "series", { most: 200 }, (found) => { page.all = found; });
  if (view === "buckets") {
    const names = now.subqueries.filter((q) => q.buckets > 0).map((q) => q.name);
    if (!names.includes(page.subquery)) page.subquery = names[0] ?? null;
    if (page.subquery !== null && (page.moment === null || anew) && fresh("buckets", now.measured))
      read("buckets", "buckets", { subquery: page.subquery, epoch: page.moment === null ? null : page.all?.epoch[page.moment] }, (found) => { page.buckets = found; });
    if (page.subquery !== null && fresh("hottest", Math.floor(now.measured / 8))) read("hottest", "hottest", { subquery: page.subquery }, (found) => { page.hottest = found; });
  }
  if (view === "epochs" && fresh("epochs", now.epoch)) read("epochs", "epochs", null, (found) => { page.epochs = found; });
  if (view === "sources" && fresh("refused", now.overview.late + now.overview.rejected)) read("refused", "refused", null, (found) => { page.refused = found; });
  if (view === "state" && now.stateful.length) {
    page.step ??= now.stateful[0].name;
    if (anew || !page.state) read("state", "state", { step: page.step, kind: page.kind, key: Object.entries(page.keys).filter(([, v]) => v).map(([k, v]) => `${k}=${v}`) }, (found) => { page.state = found; });
  }
}

// ── where we are ──

let unfollow = () => {};
function route() {
  const [, key = "", view = "overview", marked = null] = location.hash.split("/");
  if (key !== page.key) {
    unfollow();
    Object.assign(page, fresh(), { key: key || null });
    unfollow = () => {};
    if (key) unfollow = follow(key, (now) => { page.now = now; wanted(); draw(); }, (connected) => { if (connected !== page.connected) page.set({ connected }); });
  }
  page.view = TABS.some(([name]) => name === view) ? view : "overview";
  page.marked = marked === null ? null : decodeURIComponent(marked);
  if (!key) begin();
  wanted(true);
  drawNow();
  if (page.marked) requestAnimationFrame(() => document.getElementById(`d-${page.marked}`)?.scrollIntoView({ block: "center" }));
}

async function begin() {
  try {
    page.list = await get("checkpoints");
    page.error = null;
    if (!page.list.many && page.list.checkpoints.length) location.replace(`#/${page.list.checkpoints[0].key}/overview`);
  } catch (error) {
    page.error = error instanceof Refusal ? error.message : "The server cannot be reached.";
  }
  draw();
}

window.addEventListener("hashchange", (event) => {
  const first = !new URL(event.oldURL).hash;  // the page has only found out what it shows: focus stays where it is
  route();
  if (!first) { main.focus({ preventScroll: true }); window.scrollTo(0, 0); }
});
window.addEventListener("resize", draw);
setInterval(() => { if (!page.key) begin(); else if (page.now && page.now.state !== "running") draw(); }, 5000);
get("checkpoints").then((found) => { page.list ??= found; draw(); }).catch(() => {});
route();
