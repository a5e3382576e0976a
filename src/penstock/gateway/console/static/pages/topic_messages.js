// Browsing a topic: where from, which partition, what to look for; results as they are found.

import { address, lines } from "../api.js";
import { announce, field, h, replace, select } from "../dom.js";
import { bytes, count, moment, plural } from "../format.js";
import { empty, problem } from "../parts.js";
import { messageRows } from "./message_view.js";

const FROM = [["newest", "Newest first"], ["oldest", "Oldest first"], ["offset", "From an offset"], ["time", "From a time"]];
const KINDS = [["text", "contains text"], ["regex", "matches regex"], ["json", "JSON path"]];
const WHERE = [["any", "anywhere"], ["key", "in key"], ["value", "in value"], ["headers", "in headers"]];
const LIMITS = [20, 50, 100, 200, 500].map((one) => [one, one]);
const ENDS = {
  start: "the beginning was reached", end: "the end was reached", limit: "more may follow", time: "the time for one search was over",
  bytes: "enough bytes were read", records: "enough messages were looked at", cancelled: "stopped",
};

export function renderMessages(context, topic) {
  const { query, router, signal } = context;
  const from = select(FROM, query.from ?? "newest", { name: "from" });
  const offset = h("input", { type: "number", min: 0, name: "offset", value: query.offset ?? "0" });
  const time = h("input", { type: "datetime-local", step: "0.001", name: "time", value: query.time ? toLocal(Number(query.time)) : "" });
  const partitions = [["", "All"], ...topic.rows.map((row) => [row.partition, row.partition])];
  const partition = select(partitions, query.partition ?? "", { name: "partition" });
  const limit = select(LIMITS, query.limit ?? 50, { name: "limit" });
  const kind = select(KINDS, query.filter_kind ?? "text", { "aria-label": "How to search" });
  const where = select(WHERE, query.filter_in ?? "any", { "aria-label": "Where to search" });
  const sought = h("input", { type: "search", maxlength: 1000, value: query.filter ?? "", placeholder: "Search in messages", "aria-label": "Search in messages", spellcheck: "false" });
  const committed = h("input", { type: "checkbox", checked: query.committed === "1" });
  const offsetField = field("Offset", offset);
  const timeField = field("Time", time);
  const status = h("div", { class: "progress", role: "status" });
  const results = h("div", { class: "card flush" });
  let searching = null;

  const parameters = () => ({
    from: from.value, partition: partition.value, limit: limit.value === "50" ? "" : limit.value,
    offset: from.value === "offset" ? offset.value || "0" : "", time: from.value === "time" && time.value ? new Date(time.value).getTime() : "",
    filter: sought.value, filter_kind: sought.value && kind.value !== "text" ? kind.value : "", filter_in: sought.value && where.value !== "any" ? where.value : "",
    committed: committed.checked,
  });
  const fit = () => {
    offsetField.hidden = from.value !== "offset";
    timeField.hidden = from.value !== "time";
    sought.placeholder = { text: "Search in messages", regex: "order-(\\d+)", json: "$.customer.id == 7" }[kind.value];
  };

  async function run(cursor, isStep) {
    searching?.abort();
    searching = new AbortController();
    const current = searching;
    const asked = parameters();
    router.update({ ...asked, from: asked.from === "newest" ? "" : asked.from, cursor }, isStep);
    if (asked.from === "time" && !asked.time) {
      replace(status, "Choose a time to begin at.");
      return;
    }
    const table = messageRows(context, topic);
    const found = { count: 0, end: null };
    const stop = h("button", { type: "button", onclick: () => current.abort() }, "Stop");
    const show = (progress) => replace(status, h("span", { class: "busy row" }, `${plural(found.count, "message")}; looked at ${count(progress.scanned)} (${bytes(progress.scanned_bytes)}), ${count(progress.left)} left`), stop);
    show({ scanned: 0, scanned_bytes: 0, left: topic.messages ?? 0 });
    results.classList.add("loading");
    const begin = () => {
      if (results.firstChild !== table.element) replace(results, table.element);
      results.classList.remove("loading");
    };
    try {
      await lines("messages", { topic: topic.name, ...asked, cursor }, (line) => {
        if (line.message) {
          begin();
          table.add(line.message);
          found.count += 1;
        } else if (line.progress) show(line.progress);
        else if (line.error) throw new Error(line.error);
        else found.end = line.end;
      }, AbortSignal.any([current.signal, signal]));
    } catch (failure) {
      if (signal.aborted || searching !== current) return;
      if (failure.name !== "AbortError") {
        replace(results, problem(failure, () => run(cursor, false)));
        replace(status);
        results.classList.remove("loading");
        return;
      }
    }
    if (signal.aborted || searching !== current) return;
    results.classList.remove("loading");
    if (!found.count) replace(results, nothing(topic, asked, found.end));
    finish(found, asked);
  }

  function finish({ count: shown, end }, asked) {
    const next = end && !["start", "end", "cancelled"].includes(end.ended_by) && Object.entries(end.positions).map(([one, at]) => `${one}:${at}`).join(",");
    const text = end ? `${plural(shown, "message")}; looked at ${count(end.scanned)} (${bytes(end.scanned_bytes)}); ${ENDS[end.ended_by] ?? end.ended_by}.` : `${plural(shown, "message")}; stopped.`;
    const label = asked.from === "newest" ? "Older" : "Next";
    replace(status, h("span", {}, text),
      next && h("button", { type: "button", onclick: () => { scrollTo(0, 0); run(next, true); } }, asked.filter && end.ended_by !== "limit" ? "Search on" : label));
    announce(text);
  }

  const download = (format) => h("button", {
    type: "button", class: "plain", onclick: () => {
      // As a download of the browser's: it may be larger than a page can hold.
      const link = h("a", { href: address("messages/download", { topic: topic.name, ...parameters(), limit: 10000, format }), download: "" });
      document.body.append(link);
      link.click();
      link.remove();
    },
  }, { jsonl: "JSON lines", csv: "CSV", raw: "Values" }[format]);

  const form = h("form", { class: "card ask", role: "search", "aria-label": "Messages", onsubmit: (event) => { event.preventDefault(); run("", true); } },
    field("Start", from), offsetField, timeField, field("Partition", partition), field("Show", limit),
    h("label", { class: "check", title: "Leave out messages of open and aborted transactions" }, committed, "Committed only"),
    h("div", { class: "all pick" }, where, kind, h("div", { class: "grow" }, sought), h("button", { type: "submit", class: "primary" }, "Search")),
    h("div", { class: "all row" }, h("span", { class: "soft" }, "Download up to 10,000:"), download("jsonl"), download("csv"), download("raw")));
  for (const control of [from, kind]) control.addEventListener("change", fit);
  for (const control of [from, partition, limit, committed]) control.addEventListener("change", () => run("", true));
  fit();
  // Not awaited: what is found is shown as it comes.
  run(query.cursor ?? "", false);
  return h("div", { class: "stack" }, form, h("div", {}, status, results));
}

function nothing(topic, asked, end) {
  if (asked.filter) return empty("Nothing matches", `None of the ${count(end?.scanned ?? 0)} messages looked at matches. Search elsewhere, or go on with the older ones.`);
  if (!topic.messages) return empty("The topic is empty", "Produce a message, or wait for a client to write one.");
  if (asked.from === "time") return empty("Nothing is that new", `There is no message from ${moment(asked.time)} on.`);
  return empty("No messages here", "Choose another start or partition.");
}

// datetime-local wants local time without a zone.
function toLocal(timestampMs) {
  const at = new Date(timestampMs);
  return new Date(timestampMs - at.getTimezoneOffset() * 60000).toISOString().slice(0, 23);
}
