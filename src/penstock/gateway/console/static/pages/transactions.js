// Transactional ids and where each stands; those that partitions hold open and nobody will end.

import { get } from "../api.js";
import { h, replace, select } from "../dom.js";
import { DASH, count, duration, moment } from "../format.js";
import { empty, pageHead, problem, tag, topicLink } from "../parts.js";
import { ListTable, plainTable } from "../table.js";

const STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"];
const TONES = { Ongoing: "accent", CompleteCommit: "good", CompleteAbort: "warn", PrepareCommit: "accent", PrepareAbort: "warn", Dead: "bad" };

export async function render(context) {
  const state = select([["", "All states"], ...STATES.map((one) => [one, one])], context.query.state ?? "", { "aria-label": "State", onchange: () => table.change({ page: 1 }, true) });
  let now = Date.now();
  const table = new ListTable({
    context, path: "transactions", rows: "transactions", label: "transactional ids", refresh: 10,
    parameters: () => ({ state: state.value }), tools: [h("div", {}, state)],
    loaded: (answer) => { now = answer.now_ms; },
    empty: (search) => (search || state.value ? empty("Nothing matches", "Search for something else, or choose all states.")
      : empty("No transactions", "A transactional id appears when a producer with transactional.id begins to work.")),
    columns: [
      { label: "Transactional id", sort: "name", cell: (row) => h("span", { class: "name" }, row.name) },
      { label: "State", sort: "state", cell: (row) => tag(row.state, TONES[row.state] ?? "") },
      { label: "Open for", sort: "since_ms", number: true, cell: (row) => (row.since_ms === null ? DASH : duration(Math.max(0, (now - row.since_ms) / 1000))) },
      { label: "Times out after", number: true, cell: (row) => duration(row.timeout_ms === null ? null : row.timeout_ms / 1000) },
      { label: "Partitions", number: true, cell: (row) => h("span", { title: row.partitions.join(", ") }, count(row.partitions_count)) },
      { label: "Producer", number: true, cell: (row) => `${row.producer_id} / ${row.epoch ?? DASH}` },
      { label: "Coordinator", number: true, cell: (row) => row.coordinator },
    ],
  });
  const held = h("div", {});
  const look = h("button", { type: "button", onclick: () => lookForHeld(look, held, context) }, "Look for held-open transactions");
  await table.load(false);
  return [pageHead("Transactions", { actions: [look] }), h("div", { class: "stack" }, held, table.element)];
}

async function lookForHeld(button, holder, { signal }) {
  button.disabled = true;
  button.classList.add("busy");
  try {
    const { held, now_ms: now } = await get("transactions/held", {}, signal);
    replace(holder, held.length
      ? h("section", { class: "card flush" }, h("h2", {}, "Held open by partitions"), plainTable("Transactions held open", [
        { label: "Topic", cell: (row) => topicLink(row.topic) },
        { label: "Partition", number: true, cell: (row) => row.partition },
        { label: "From offset", number: true, cell: (row) => count(row.start_offset) },
        { label: "Stands", cell: (row) => tag(row.standing, row.standing === "hanging" ? "bad" : "accent") },
        { label: "Transactional id", cell: (row) => row.name ?? DASH },
        { label: "Last write", cell: (row) => `${moment(row.last_write_ms)} (${duration((now - row.last_write_ms) / 1000)} ago)` },
      ], held), held.some((one) => one.standing === "hanging") && h("p", { class: "note bad" }, "Hanging ones hide everything after them from readers of committed data. End one with ", h("code", {}, "penstock transactions abort-hanging"), "."))
      : h("div", { class: "note good" }, "No partition holds a transaction open."));
  } catch (failure) {
    if (failure.name !== "AbortError") replace(holder, problem(failure));
  } finally {
    button.disabled = false;
    button.classList.remove("busy");
  }
}
