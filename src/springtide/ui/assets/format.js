// Figures for people: counts, rates, sizes, times. The same words as on the command line.

const three = (value) => {
  const digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return value.toFixed(digits).replace(/\.00$|(\.\d)0$/, "$1").replace(/\.0$/, "");
};
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export const NONE = "–";
export const count = (n) => (known(n) ? Math.round(n).toLocaleString("en") : NONE);

export function short(n, unit = "") {
  if (!known(n)) return NONE;
  for (const [letter, factor] of [["\u00a0M", 1e6], ["\u00a0k", 1e3]]) if (n >= factor) return `${three(n / factor)}${letter}${unit}`;
  return `${three(n)}${unit}`;
}
export const rate = (n) => short(n, "/s");

export function size(n) {
  if (!known(n)) return NONE;
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= factor) return `${three(n / factor)}\u00a0${unit}`;
  return `${Math.round(n)}\u00a0B`;
}

export function seconds(s) {
  if (!known(s)) return NONE;
  if (s < 0.1) return `${Math.round(s * 1000)}\u00a0ms`;
  if (s < 59.95) return `${s < 10 ? s.toFixed(2) : s.toFixed(1)}\u00a0s`;
  const whole = Math.round(s), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60, rest = whole % 60;
  const two = (n) => String(n).padStart(2, "0");
  if (hours >= 48) return plural(Math.floor(hours / 24), "day");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}
export const extra = (s) => (known(s) ? `${s >= 0 ? "+" : "−"}${seconds(Math.abs(s))}` : NONE);
export const percent = (share, digits = 0) => (known(share) ? `${(share * 100).toFixed(digits)}\u00a0%` : NONE);
export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

const clockOf = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayOf = new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit" });
export const clock = (at) => (known(at) ? clockOf.format(at * 1000) : NONE);
export const minute = (at) => clock(at).slice(0, 5);
export const day = (at) => dayOf.format(at * 1000);
/** A moment, with the day where it is not of the last one. */
export const moment = (at) => (!known(at) ? NONE : Date.now() / 1000 - at > 86400 ? `${day(at)} ${clock(at)}` : clock(at));
export const ago = (at) => (known(at) ? `${seconds(Math.max(0, Date.now() / 1000 - at))} ago` : NONE);

/** An event time, in UTC. */
export function eventTime(s) {
  if (!known(s)) return NONE;
  const date = new Date(s * 1000);
  if (Number.isNaN(date.getTime())) return "beyond all calendars";
  return date.toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
}

/** Several things in one sentence. */
export function listed(things) {
  return things.length < 2 ? things.join("") : `${things.slice(0, -1).join(", ")} and ${things.at(-1)}`;
}
export const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);
