// Elements without markup: every text is a text node, so no name of a step, key or value can become anything else.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "path", "rect", "line", "circle", "text", "tspan", "polyline", "polygon", "title", "defs", "clipPath", "pattern"]);

/** Make an element. `on` has listeners, `style` properties, `key` tells it from its siblings; null and false children are left out. */
export function h(tag, props, ...children) {
  const element = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(element, value);
    else if (name === "key") element.itsKey = String(value);
    else if (name === "style") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else if (name === "value") { element.value = value; element.itsValue = value; }
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function listen(element, listeners) {
  element.itsOn = listeners;
  for (const type of Object.keys(listeners)) element.addEventListener(type, heard);
}

function heard(event) {
  event.currentTarget.itsOn?.[event.type]?.(event);
}

/** Make `element` look like `wanted`, and keep what is the same: focus, scroll and transitions stay. */
export function morph(element, wanted) {
  attributes(element, wanted);
  if (element.itsOn || wanted.itsOn) {
    for (const type of Object.keys(wanted.itsOn ?? {})) if (!(type in (element.itsOn ?? {}))) element.addEventListener(type, heard);
    element.itsOn = wanted.itsOn;
  }
  if ("itsValue" in wanted && wanted.itsValue !== element.itsValue) {
    element.itsValue = wanted.itsValue;
    element.value = wanted.itsValue;
  }
  children(element, wanted);
}

function attributes(element, wanted) {
  for (const { name } of [...element.attributes]) if (name !== "style" && name !== "open" && !wanted.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (name !== "style" && element.getAttribute(name) !== value) element.setAttribute(name, value);
  if (element.style && element.style.cssText !== wanted.style.cssText) element.style.cssText = wanted.style.cssText;
}

function children(element, wanted) {
  const keyed = new Map();
  for (const child of element.childNodes) if (child.itsKey !== undefined) keyed.set(child.itsKey, child);
  let here = element.firstChild;
  for (const next of [...wanted.childNodes]) {
    let found = null;
    if (next.itsKey !== undefined) found = keyed.get(next.itsKey) ?? null;
    else {
      while (here && here.itsKey !== undefined) here = here.nextSibling;
      found = here;
    }
    if (found && found.nodeName === next.nodeName) {
      if (found === here) here = here.nextSibling;
      else element.insertBefore(found, here);
      keyed.delete(found.itsKey);
      if (next.nodeType === Node.TEXT_NODE) { if (found.data !== next.data) found.data = next.data; }
      else morph(found, next);
    } else {
      element.insertBefore(next, here);
    }
  }
  while (here) { const gone = here; here = here.nextSibling; gone.remove(); }
  for (const gone of keyed.values()) gone.remove();  // of those that were passed over
}

/** Show exactly these children in an element that stays. */
export function show(element, ...content) {
  const wanted = element.cloneNode(false);
  wanted.itsOn = element.itsOn;
  append(wanted, content);
  morph(element, wanted);
}
