// Settings of a topic, a broker or a group: where each comes from, and changing those that can be changed.

import { get, post } from "../api.js";
import { ask } from "../dialog.js";
import { field, h, replace, toast } from "../dom.js";
import { DASH, duration } from "../format.js";
import { tag } from "../parts.js";

export async function configTable({ session, signal }, kind, name) {
  const holder = h("div", {});
  const search = h("input", { type: "search", class: "search", placeholder: "Search settings", "aria-label": "Search settings", oninput: () => draw() });
  const own = h("input", { type: "checkbox", onchange: () => draw() });
  const total = h("span", { class: "count", role: "status" });
  const body = h("tbody", {});
  let entries = [];
  const load = async () => {
    entries = (await get("configs", { kind, name }, signal)).configs;
    draw();
  };
  const draw = () => {
    const sought = search.value.trim().toLowerCase();
    const shown = entries.filter((one) => one.name.includes(sought) && (!own.checked || one.is_overridden));
    // What somebody has set comes first: it is why one looks.
    shown.sort((a, b) => Number(b.is_overridden) - Number(a.is_overridden) || a.name.localeCompare(b.name));
    total.textContent = `${shown.length} of ${entries.length} settings`;
    replace(body, shown.map((entry) => row(entry)), !shown.length && h("tr", {}, h("td", { colspan: 4, class: "soft" }, "No setting matches.")));
  };
  const row = (entry) => h("tr", { class: entry.is_overridden ? "own" : "" },
    h("td", {}, entry.name),
    h("td", { "data-label": "Value" }, h("span", {}, entry.is_sensitive ? "hidden" : entry.value || DASH, readable(entry))),
    h("td", { "data-label": "From" }, tag(entry.source, entry.is_overridden ? "accent" : "")),
    h("td", { class: "number", "data-label": "" }, !session.is_readonly && !entry.is_read_only &&
      h("button", { type: "button", class: "plain", "aria-label": `Edit ${entry.name}`, onclick: () => edit(kind, name, entry, load) }, "Edit")));
  await load();
  replace(holder, h("div", { class: "tools" }, search, h("label", { class: "check" }, own, "Only overridden"), total),
    h("div", { class: "card flush scroll" }, h("table", { class: "cards config" }, h("caption", { class: "visually-hidden" }, `Settings of ${name}`),
      h("thead", {}, h("tr", {}, ["Setting", "Value", "From", "Change"].map((label, index) => h("th", { scope: "col", class: index === 3 ? "number" : "" }, label)))), body)));
  return holder;
}

// Milliseconds nobody can read in their head.
function readable({ name, value }) {
  if (!name.endsWith(".ms") || !/^\d{4,}$/.test(value ?? "") || value.length > 15) return null;
  return h("span", { class: "soft" }, ` = ${duration(Number(value) / 1000)}`);
}

function edit(kind, name, entry, reload) {
  const value = h("input", { value: entry.value ?? "", autocomplete: "off", spellcheck: "false", maxlength: 10000 });
  const change = async (body, text) => {
    await post("configs/change", { kind, name, ...body });
    toast(text);
    await reload();
  };
  const reset = entry.is_overridden && h("button", {
    type: "button", class: "plain",
    onclick: () => change({ unset: [entry.name] }, `${entry.name} is as the broker has it again.`).then(() => dialog.close(), (failure) => toast(failure.message, true)),
  }, "Back to the default");
  const dialog = ask({
    title: entry.name, action: "Save",
    body: [field("Value", value, entry.fallback !== null ? `Without its own value: ${entry.fallback || "empty"}` : undefined), reset],
    submit: () => change({ set: { [entry.name]: value.value } }, `${entry.name} was changed.`),
  });
}
