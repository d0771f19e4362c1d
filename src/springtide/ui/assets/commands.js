// Commands to the query: each asks first, shows the answer to that very command, and says what it cost.
import { get, post, Refusal } from "./api.js";
import { h, show } from "./dom.js";
import { count, extra, listed, plural, seconds, size } from "./format.js";

const dialog = document.getElementById("dialog");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

const field = (label, input) => h("label", null, label, input);

export const COMMANDS = {
  scale: {
    title: (g) => `Scale ${g.step}`, act: "Scale",
    says: (g) => `${g.step} has ${plural(g.instances, "instance")}. Another number takes effect with the next epoch; nothing is stopped, and the rows stay the same.`,
    fields: (g) => [field("Instances", h("input", { name: "instances", type: "number", min: 1, max: g.most ?? 10000, value: String(g.wanted ?? g.instances + 1), required: true }))],
    options: (form, g) => ({ step: g.step, instances: Number(form.get("instances")) }),
  },
  move: {
    title: (g) => `Move ${plural(g.buckets.length, "bucket")} of ${g.step}`, act: "Move",
    says: (g) => `${g.buckets.length > 12 ? `${plural(g.buckets.length, "bucket")}, ${g.buckets.slice(0, 10).join(", ")}, …` : `Bucket${g.buckets.length === 1 ? "" : "s"} ${listed(g.buckets.map(String))}`} will be worked on by another instance from the next epoch on.`,
    fields: (g) => [field("To instance", h("select", { name: "to" }, Array.from({ length: g.instances }, (_, i) => h("option", { value: String(i) }, `instance ${i}`))))],
    options: (form, g) => ({ step: g.step, buckets: g.buckets, to: Number(form.get("to")) }),
  },
  rebalance: {
    title: (g) => `Rebalance ${g.step}`, act: "Rebalance",
    says: (g) => `The load of the ${plural(g.instances, "instance")} of ${g.step} is evened out by what their buckets did last. Their number stays.`,
    options: (_, g) => ({ step: g.step }),
  },
  pause: { title: () => "Pause elasticity", act: "Pause", says: () => "The query runs on. Its instances and buckets change only by hand until elasticity is resumed." },
  resume: { title: () => "Resume elasticity", act: "Resume", says: () => "The policy decides again, with the next summary." },
  savepoint: {
    title: () => "Keep a savepoint", act: "Keep",
    says: () => "The newest epoch is kept under a name; no clean-up touches it. The query runs on.",
    fields: () => [field("Name", h("input", { name: "name", type: "text", required: true, pattern: "[A-Za-z0-9_][A-Za-z0-9_.\\-]*", autocomplete: "off", spellcheck: "false", title: "letters, digits, - and _" }))],
    options: (form) => ({ name: form.get("name") }),
  },
  stop: { title: (g) => `Stop ${g.query}`, act: "Stop", danger: true, says: () => "The query stops after the epoch at work. Nothing is lost: the next run goes on from there. This page stays." },
};

/** Ask whether a command is meant, give it, and stay with it until its answer is there. */
export function ask(key, name, given, done = () => {}) {
  const command = COMMANDS[name];
  let closed = false;
  const draw = (...content) => show(dialog, h("form", { method: "dialog", key: "form", on: { submit } }, h("h2", { id: "dialog-title" }, command.title(given)), content));
  const close = h("button", { value: "close" }, "Close");
  async function submit(event) {
    if (event.submitter?.value !== "yes") return;
    event.preventDefault();
    const options = command.options?.(new FormData(event.currentTarget), given) ?? {};
    draw(h("p", { key: "wait", class: "words" }, h("span", { class: "waits", "aria-hidden": "true" }), "Sent; it is taken up between two epochs."), h("div", { key: "b", class: "buttons" }, close));
    try {
      const sent = await post(`c/${key}/commands`, { command: name, options });
      let answer = sent.answer ?? { status: "sent", final: false };
      for (let tries = 0; !answer.final && !closed; tries++) {
        tell(answer);
        await wait(Math.min(2000, 150 + 50 * tries));
        answer = await get(`c/${key}/commands/${name}/${sent.id}`);
      }
      tell(answer);
    } catch (error) {
      tell({ status: "refused", reason: error instanceof Refusal ? error.message : "the server cannot be reached", final: true });
    }
    done();
  }
  function tell(answer) {
    if (closed) return;
    const waits = !answer.final && h("span", { class: "waits", "aria-hidden": "true" });
    const cost = costs(answer);
    draw(
      h("p", { key: "answer", role: "status", class: answer.final ? (["refused", "failed"].includes(answer.status) ? "note bad" : "note") : "words", "data-status": answer.final ? answer.status : "waiting" }, waits, sentence(name, answer, given)),
      cost.length > 0 && h("dl", { key: "cost", class: "tip-free", "aria-label": "What it cost" }, cost.map(([what, value]) => h("div", { class: "gauge cost-line" }, h("dt", null, what), h("dd", null, value)))),
      h("div", { key: "b", class: "buttons" }, close));
    document.getElementById("spoken").textContent = sentence(name, answer, given);
  }
  dialog.addEventListener("close", () => { closed = true; }, { once: true });
  draw(h("p", { key: "says", class: "words" }, command.says(given)),
    command.fields && h("div", { key: "fields", class: "fields" }, command.fields(given)),
    h("div", { key: "b", class: "buttons" }, h("button", { value: "no", formnovalidate: true }, "Cancel"), h("button", { value: "yes", class: command.danger ? "danger" : "first" }, command.act)));
  dialog.showModal();
  dialog.querySelector("input, select, button[value=yes]")?.focus();
}

function sentence(name, answer, given) {
  switch (answer.status) {
    case "sent": return "Sent; it is taken up between two epochs.";
    case "waiting": return answer.reason || "It waits for executors.";
    case "refused": return `Refused: ${answer.reason}`;
    case "failed": return `It failed: ${answer.reason}`;
    default:
      if (name === "stop") return `${given.query} has stopped after epoch ${count(answer.epoch)}.`;
      if (name === "pause") return "Elasticity is paused; what you ask for by hand is still done.";
      if (name === "resume") return "Elasticity goes on.";
      if (name === "savepoint") return `${answer.reason}, of epoch ${count(answer.epoch)}.`;
      if (!answer.change) return answer.reason || "There was nothing to do.";
      return `${answer.change.subquery}: ${answer.what}, since epoch ${count(answer.epoch)}.${answer.final ? "" : " What it cost is being measured."}`;
  }
}

function costs(answer) {
  const change = answer.change;
  if (!change || change.extra_seconds === null) return [];
  const found = [["first epoch with it", seconds(change.seconds)], ["more than usual", extra(change.extra_seconds)]];
  if (change.buckets) found.push(["buckets with a new owner", `${count(change.moved)} of ${count(change.buckets)}`], ["their state", size(change.bytes_moved)]);
  return found;
}
