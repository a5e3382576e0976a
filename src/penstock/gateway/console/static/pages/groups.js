// All consumer groups with how far they are behind.

import { get } from "../api.js";
import { h, select } from "../dom.js";
import { DASH, count, duration, rate } from "../format.js";
import { empty, groupLink, pageHead, stateTag, tag, topicLink } from "../parts.js";
import { ListTable } from "../table.js";

const STATES = [["", "All states"], ["stable", "Stable"], ["empty", "Empty"], ["rebalanc", "Rebalancing"], ["dead", "Dead"]];

export async function render(context) {
  const state = select(STATES, context.query.state ?? "", { "aria-label": "State", onchange: () => table.change({ page: 1 }, true) });
  const table = groupTable(context, {
    label: "groups", parameters: () => ({ state: state.value }), tools: [h("div", {}, state)],
    empty: (search) => (search || state.value ? empty("No group matches", "Search for something else, or choose all states.")
      : empty("No consumer groups yet", "A group appears when its first consumer joins or commits an offset.")),
  });
  await table.load(false);
  return [pageHead("Consumer groups"), table.element];
}

// Also of the Spark page: its queries are groups.
export function groupTable(context, { label, parameters, tools = [], empty: nothing, first = "Group" }) {
  const delays = new Map();
  const behind = (row) => (row.lag === 0 ? "0 s" : delays.has(row.name) ? duration(delays.get(row.name)) : DASH);
  const table = new ListTable({
    context, path: "groups", rows: "groups", label, parameters, tools, empty: nothing,
    columns: [
      { label: first, sort: "name", cell: (row) => [groupLink(row.name), row.kind === "consumer" && [" ", tag("new protocol")]] },
      { label: "State", sort: "state", cell: (row) => stateTag(row.state) },
      { label: "Topics", cell: (row) => topics(row) },
      { label: "Lag", sort: "lag", number: true, cell: (row) => count(row.lag) },
      { label: "Behind", number: true, cell: (row) => h("span", { "data-behind": row.name }, behind(row)) },
      { label: "Commits", sort: "progress", number: true, cell: (row) => rate(row.progress) },
    ],
    // Seconds cost a read of each partition that is behind, so they come after the list and only for what is shown.
    loaded: async ({ groups }) => {
      const names = groups.filter((row) => row.lag > 0).map((row) => row.name).slice(0, 25);
      if (!names.length) return;
      try {
        const found = await get("groups/delays", { name: names }, context.signal);
        for (const [name, seconds] of Object.entries(found)) delays.set(name, seconds);
        for (const cell of table.body.querySelectorAll("[data-behind]")) {
          if (delays.has(cell.dataset.behind) && names.includes(cell.dataset.behind)) cell.textContent = duration(delays.get(cell.dataset.behind));
        }
      } catch {
        // The list is worth something without them.
      }
    },
  });
  return table;
}

function topics(row) {
  if (!row.topics.length) return h("span", { class: "soft" }, "none committed");
  const more = row.topics_count - Math.min(3, row.topics.length);
  return [row.topics.slice(0, 3).map((name, index) => [index ? ", " : "", topicLink(name)]), more > 0 && h("span", { class: "soft" }, ` and ${more} more`)];
}
