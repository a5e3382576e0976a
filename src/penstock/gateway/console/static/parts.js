// What pages share: heads, tabs, facts, empty states, errors, and refreshing while somebody looks.

import { h, icon, replace } from "./dom.js";
import { place } from "./router.js";

export function pageHead(title, { crumbs = [], tags = [], actions = [] } = {}) {
  document.title = `${title} · Penstock`;
  return h("div", {},
    crumbs.length > 0 && h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, crumbs.map(([label, href]) => [h("a", { href }, label), " / "])),
    h("div", { class: "head" }, h("h1", {}, title), tags, actions.some(Boolean) && h("div", { class: "row" }, actions)));
}

export function tabs(label, entries, current) {
  return h("nav", { class: "tabs", "aria-label": label }, entries.map(([key, text, href]) =>
    h("a", { href, "aria-current": key === current ? "page" : null }, text)));
}

// [[label, value, {tone, small}], …]
export function facts(entries) {
  return h("dl", { class: "facts" }, entries.filter(Boolean).map(([label, value, { tone = "", small = false } = {}]) =>
    h("div", { class: tone }, h("dt", {}, label), h("dd", { class: small ? "small" : "" }, value))));
}

export const tag = (text, tone = "") => h("span", { class: `tag ${tone}` }, text);

const STATES = { stable: "good", empty: "", dead: "bad", "preparing rebalancing": "warn", "completing rebalancing": "warn", assigning: "warn", reconciling: "warn" };
export const stateTag = (state) => tag(state, STATES[state] ?? "");

export function empty(title, text, action) {
  return h("div", { class: "empty" }, h("strong", {}, title), h("p", {}, text), action);
}

export function problem(failure, retry) {
  return h("div", { class: "note bad", role: "alert" }, h("strong", {}, failure.status === 404 ? "Not found" : "This did not work"),
    h("p", {}, failure.message), retry && h("p", {}, h("button", { type: "button", onclick: retry }, "Try again")));
}

export const topicLink = (name, tab) => h("a", { href: place("topics", name, tab), class: "name" }, name);
export const groupLink = (name) => h("a", { href: place("groups", name), class: "name" }, name);

export { icon };

// Again and again while the page is open and seen; a failure is shown and tried again.
export function every(seconds, work, signal) {
  let timer;
  const run = async () => {
    if (document.visibilityState === "visible") await work();
    if (!signal.aborted) timer = setTimeout(run, seconds * 1000);
  };
  timer = setTimeout(run, seconds * 1000);
  const wake = () => {
    if (document.visibilityState !== "visible" || signal.aborted) return;
    clearTimeout(timer);
    run();
  };
  document.addEventListener("visibilitychange", wake, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
}

// Fill `holder` by `load`, show what went wrong in its place, and say when nothing was ever shown.
export async function fill(holder, load, signal) {
  holder.setAttribute("aria-busy", "true");
  try {
    const made = await load();
    if (!signal.aborted && made) replace(holder, made);
  } catch (failure) {
    if (failure.name === "AbortError") return;
    replace(holder, problem(failure, () => fill(holder, load, signal)));
  } finally {
    holder.removeAttribute("aria-busy");
  }
}

// Somebody reads or works here: do not pull the rows away.
export function isInUse(element) {
  if (element.contains(document.activeElement) && document.activeElement !== element) return true;
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && element.contains(selection.anchorNode));
}
