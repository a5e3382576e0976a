// All topics: searched, sorted and paged by the gateway.

import { post } from "../api.js";
import { field, h, toast } from "../dom.js";
import { ask } from "../dialog.js";
import { bytes, compact, count, plural, rate } from "../format.js";
import { empty, pageHead, tag, topicLink } from "../parts.js";
import { place } from "../router.js";
import { ListTable } from "../table.js";

const COLUMNS = [
  { label: "Topic", sort: "name", cell: (row) => [topicLink(row.name), " ", health(row)] },
  { label: "Partitions", sort: "partitions", number: true, cell: (row) => count(row.partitions) },
  { label: "Replicas", sort: "replication", number: true, cell: (row) => count(row.replication) },
  { label: "Messages", sort: "messages", number: true, cell: (row) => compact(row.messages) },
  { label: "Size", sort: "size_bytes", number: true, cell: (row) => bytes(row.size_bytes) },
  { label: "Produced", sort: "messages_in", number: true, cell: (row) => rate(row.messages_in) },
];

export async function render(context) {
  const { session } = context;
  const internal = h("input", { type: "checkbox", checked: context.query.internal === "1", onchange: () => table.change({ page: 1 }, true) });
  const create = !session.is_readonly && h("button", { type: "button", class: "primary", onclick: () => createTopic(context) }, "Create topic");
  const table = new ListTable({
    context, path: "topics", rows: "topics", columns: COLUMNS, label: "topics",
    parameters: () => ({ internal: internal.checked }),
    tools: [h("label", { class: "check" }, internal, "Internal")],
    empty: (search, { hidden }) => (search
      ? empty("No topic matches", `Nothing contains “${search}”.`)
      : empty("No topics yet", hidden ? `${plural(hidden, "internal topic")} hidden. Create a topic, or let a client create one by writing to it.` : "Create one, or let a client create one by writing to it.",
        !session.is_readonly && h("button", { type: "button", class: "primary", onclick: () => createTopic(context) }, "Create topic"))),
  });
  await table.load(false);
  return [pageHead("Topics", { actions: [create] }), table.element];
}

function health(row) {
  if (row.offline) return tag(`${row.offline} offline`, "bad");
  if (row.under_replicated) return tag(`${row.under_replicated} under-replicated`, "warn");
  return row.is_internal ? tag("internal") : null;
}

function createTopic({ router }) {
  const name = h("input", { required: true, maxlength: 249, pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off", spellcheck: "false" });
  const partitions = h("input", { type: "number", min: 1, max: 10000, placeholder: "broker’s default" });
  const replication = h("input", { type: "number", min: 1, max: 100, placeholder: "broker’s default" });
  const retention = h("input", { type: "number", min: 0, step: "any", placeholder: "broker’s default" });
  const compacted = h("input", { type: "checkbox" });
  const more = h("textarea", { rows: 3, placeholder: "max.message.bytes=2097152", spellcheck: "false" });
  ask({
    title: "Create a topic", action: "Create",
    body: [
      field("Name", name, "Letters, digits, dots, dashes and underscores."),
      h("div", { class: "pair" }, field("Partitions", partitions), field("Replicas", replication), field("Keep for (hours)", retention)),
      h("label", { class: "check" }, compacted, "Keep only the newest message of each key (compacted)"),
      field("Other settings", more, "One name=value on each line."),
    ],
    submit: async () => {
      const configs = parseSettings(more.value);
      if (retention.value) configs["retention.ms"] = String(Math.round(Number(retention.value) * 3600000));
      if (compacted.checked) configs["cleanup.policy"] = "compact";
      await post("topic/create", {
        name: name.value, partitions: Number(partitions.value) || -1, replication: Number(replication.value) || -1, configs,
      });
      toast(`Topic ${name.value} was created.`);
      router.go(place("topics", name.value));
    },
  });
}

export function parseSettings(text) {
  const configs = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const [name, ...value] = line.split("=");
    if (!value.length) throw new Error(`“${line}” is to be name=value.`);
    configs[name.trim()] = value.join("=").trim();
  }
  return configs;
}

