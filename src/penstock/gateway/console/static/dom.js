// Elements without markup: data only ever becomes a text node or an attribute's value, so it can never become a script.

const SVG = "http://www.w3.org/2000/svg";

// h("a", {href: "/x", class: "y", onclick: f}, "text", [more, children])
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    // Through the object, not the attribute: the page's policy allows no inline style.
    if (name === "css") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(element, ...children) {
  const made = document.createDocumentFragment();
  append(made, children);
  element.replaceChildren(made);
}

const PATHS = {
  overview: "M2 13V8M6.5 13V3M11 13V6M15 13H1",
  brokers: "M2 3h12v4H2zM2 9h12v4H2zM5 5h0M5 11h0",
  topics: "M2 4h12M2 8h12M2 12h8",
  groups: "M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM1.5 13.5c0-5.2 8-5.2 8 0M11 7.4a1.9 1.9 0 1 0-1-3.5M11.5 9c2 .2 3 1.8 3 4.2",
  schemas: "M6 2.5H4.5v4L3 8l1.5 1.5v4H6M10 2.5h1.5v4L13 8l-1.5 1.5v4H10",
  transactions: "M2 5h10L9.5 2.5M14 11H4l2.5 2.5",
  spark: "M9 1.5 3.5 9H8l-1 5.5L12.5 7H8z",
  doctor: "M1.5 8h3l2-5 3 10 2-5h3",
  sun: "M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6M8 1v1M8 14v1M1 8h1M14 8h1M3 3l.7.7M12.3 12.3l.7.7M13 3l-.7.7M3.7 12.3 3 13",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

let counter = 0;
export const uniqueId = () => `e${++counter}`;

// A control with its label; `control` gets the id the label needs.
export function field(label, control, hint) {
  control.id ||= uniqueId();
  if (hint) control.setAttribute("aria-describedby", `${control.id}-hint`);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control,
    hint && h("small", { id: `${control.id}-hint` }, hint));
}

export function checkbox(label, properties) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", ...properties }), label);
}

export function select(options, chosen, properties = {}) {
  return h("select", properties, options.map(([value, label]) => h("option", { value, selected: String(value) === String(chosen) }, label)));
}

// For those who do not see that something has changed.
export function announce(text) {
  document.getElementById("announce").textContent = text;
}

export function toast(text, isBad = false) {
  const shown = h("div", { class: isBad ? "toast bad" : "toast" }, text);
  document.getElementById("toasts").append(shown);
  setTimeout(() => shown.remove(), isBad ? 9000 : 4500);
}
