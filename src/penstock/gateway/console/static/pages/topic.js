// One topic: messages, partitions, settings, who reads it.

import { get, live, post } from "../api.js";
import { Chart } from "../chart.js";
import { confirmByName, ask } from "../dialog.js";
import { field, h, toast } from "../dom.js";
import { byteRate, bytes, compact, count, rate } from "../format.js";
import { empty, every, facts, fill, groupLink, isInUse, pageHead, stateTag, tabs, tag } from "../parts.js";
import { place } from "../router.js";
import { plainTable } from "../table.js";
import { configTable } from "./topic_configs.js";
import { renderMessages } from "./topic_messages.js";
import { produceMessage } from "./produce.js";

const TABS = [["messages", "Messages"], ["partitions", "Partitions"], ["groups", "Consumers"], ["settings", "Settings"], ["charts", "Charts"]];

export async function render(context) {
  const { parameters: { name, tab = "messages" }, signal, session } = context;
  const topic = await get("topic", { name }, signal);
  const summary = h("div", {}, factsOf(topic));
  const body = h("div", {});
  const refresh = async () => {
    const fresh = await get("topic", { name }, signal);
    summary.replaceChildren(factsOf(fresh));
    if (tab === "partitions" && !isInUse(body)) body.replaceChildren(partitionsOf(fresh));
    if (tab === "groups" && !isInUse(body)) body.replaceChildren(groupsOf(fresh));
  };
  every(5, () => refresh().catch(() => {}), signal);
  const actions = !session.is_readonly && [
    h("button", { type: "button", class: "primary", onclick: () => produceMessage(context, topic) }, "Produce"),
    h("button", { type: "button", onclick: () => addPartitions(context, topic) }, "Add partitions"),
    h("button", { type: "button", class: "danger", onclick: () => emptyTopic(topic) }, "Empty"),
    h("button", { type: "button", class: "danger", onclick: () => deleteTopic(context, topic) }, "Delete"),
  ];
  const entries = TABS.map(([key, label]) => [key, label, place("topics", name, key === "messages" ? "" : key)]);
  await fill(body, () => content(context, topic, tab), signal);
  return [
    pageHead(name, { crumbs: [["Topics", place("topics")]], tags: topic.is_internal ? [tag("internal")] : [], actions: actions || [] }),
    h("div", { class: "stack" }, summary, h("div", {}, tabs("Topic", entries, tab), body)),
  ];
}

function content(context, topic, tab) {
  switch (tab) {
    case "messages": return renderMessages(context, topic);
    case "partitions": return partitionsOf(topic);
    case "groups": return groupsOf(topic);
    case "settings": return configTable(context, "topic", topic.name);
    case "charts": return chartsOf(context, topic);
    default: return empty("There is no such tab", "Choose one above.");
  }
}

const factsOf = (topic) => facts([
  ["Messages", compact(topic.messages)],
  ["Size, all replicas", bytes(topic.size_bytes)],
  ["Produced", rate(topic.messages_in)],
  topic.messages_out !== undefined && ["Consumed", rate(topic.messages_out)],
  ["Partitions", count(topic.partitions)],
  ["Replicas", count(topic.replication)],
  ["Under-replicated", count(topic.under_replicated), { tone: topic.offline ? "bad" : topic.under_replicated ? "warn" : "" }],
]);

function partitionsOf(topic) {
  const replicas = (row) => h("span", { class: "replicas" }, row.replicas.map((id) =>
    tag(`${id}`, row.adding.includes(id) ? "accent" : row.in_sync.includes(id) ? "good" : "warn")));
  return h("div", { class: "card flush" }, plainTable(`Partitions of ${topic.name}`, [
    { label: "Partition", cell: (row) => h("a", { href: `${place("topics", topic.name)}?partition=${row.partition}` }, row.partition) },
    { label: "Leader", cell: (row) => (row.leader === null ? tag("none", "bad") : row.leader) },
    { label: "Replicas", cell: replicas },
    { label: "In sync", cell: (row) => `${row.in_sync.length} of ${row.replicas.length}` },
    { label: "Start", number: true, cell: (row) => count(row.start) },
    { label: "End", number: true, cell: (row) => count(row.end) },
    { label: "Messages", number: true, cell: (row) => count(row.start === null || row.end === null ? null : row.end - row.start) },
    { label: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
  ], topic.rows));
}

function groupsOf(topic) {
  if (!topic.groups.length) return h("div", { class: "card" }, empty("No group has read this topic", "A consumer group shows up here once it has committed an offset."));
  return h("div", { class: "card flush" }, plainTable(`Groups that read ${topic.name}`, [
    { label: "Group", cell: (row) => groupLink(row.name) },
    { label: "State", cell: (row) => stateTag(row.state) },
    { label: "Lag", number: true, cell: (row) => count(row.lag) },
  ], topic.groups));
}

function chartsOf({ session, signal }, topic) {
  const charts = session.has_metrics
    ? [new Chart("Messages per second", [{ key: "messages_in", label: "Produced", show: rate }, { key: "messages_out", label: "Consumed", show: rate }]),
      new Chart("Bytes per second", [{ key: "bytes_in", label: "In", show: byteRate }, { key: "bytes_out", label: "Out", show: byteRate }], 1024)]
    : [new Chart("Messages per second", [{ key: "messages_in", label: "Produced", show: rate }])];
  live({ scope: "topic", name: topic.name }, {
    history: (history) => charts.forEach((chart) => chart.load(history)),
    moment: ({ time, values }) => charts.forEach((chart) => chart.add(time, values)),
  }, signal);
  return h("div", { class: "columns" }, charts.map((chart) => chart.element));
}

function addPartitions({ router }, topic) {
  const number = h("input", { type: "number", required: true, min: topic.partitions + 1, max: 10000, value: topic.partitions + 1 });
  ask({
    title: "Add partitions", action: "Add",
    body: [field("Partitions from now on", number, `There are ${topic.partitions}. They can never be taken away again, and keys may go to other partitions than before.`)],
    submit: async () => {
      await post("topic/partitions", { name: topic.name, partitions: Number(number.value) });
      toast(`${topic.name} has ${number.value} partitions now.`);
      router.go(place("topics", topic.name, "partitions"));
    },
  });
}

const emptyTopic = (topic) => confirmByName({
  title: "Delete all messages", name: topic.name, action: "Delete all messages",
  text: `All ${count(topic.messages)} messages of the topic are deleted. This cannot be undone; offsets go on from where they are.`,
  submit: async () => {
    await post("topic/empty", { name: topic.name });
    toast(`${topic.name} is empty.`);
  },
});

const deleteTopic = ({ router }, topic) => confirmByName({
  title: "Delete the topic", name: topic.name, action: "Delete topic",
  text: "The topic and all its messages are deleted. This cannot be undone.",
  submit: async () => {
    await post("topic/delete", { name: topic.name });
    toast(`${topic.name} was deleted.`);
    router.go(place("topics"));
  },
});
