// What the page asks its server for.

const word = document.querySelector('meta[name="springtide-word"]').content;
export const readOnly = document.querySelector('meta[name="springtide-read-only"]').content === "yes";

export class Refusal extends Error {}

async function answer(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(body.error ?? `the server answers ${response.status}`);
  return body;
}

const query = (given) => {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(given ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined && each !== "") parameters.append(name, each);
  }
  return parameters.size ? `?${parameters}` : "";
};

export const get = (path, given) => fetch(`/api/${path}${query(given)}`).then(answer);

export const post = (path, body) =>
  fetch(`/api/${path}`, { method: "POST", headers: { "Content-Type": "application/json", "X-Springtide": word }, body: JSON.stringify(body) }).then(answer);

/** Follow a checkpoint: `told` gets the query as it is, whenever something changed; `connected` whether the server can be heard. */
export function follow(key, told, connected) {
  const source = new EventSource(`/api/c/${key}/events`);
  source.addEventListener("now", (event) => { connected(true); told(JSON.parse(event.data)); });
  source.addEventListener("open", () => connected(true));
  source.addEventListener("error", () => connected(false));
  return () => source.close();
}
