// One consumer group: lag by partition, members with what they hold, and moving it.

import { get, live, post } from "../api.js";
import { Chart } from "../chart.js";
import { confirmByName } from "../dialog.js";
import { h, replace, toast } from "../dom.js";
import { DASH, compact, count, duration, moment, ranges, rate } from "../format.js";
import { empty, every, facts, fill, isInUse, pageHead, stateTag, tag, topicLink } from "../parts.js";
import { place } from "../router.js";
import { plainTable } from "../table.js";
import { resetOffsets } from "./group_reset.js";

export async function render(context) {
  const { parameters: { name }, signal, session } = context;
  const holder = h("div", { class: "stack" });
  const lag = new Chart("Lag", [{ key: "lag", label: "Messages behind", show: (value) => compact(value === null ? null : Math.round(value)) }]);
  const progress = new Chart("Progress", [{ key: "progress", label: "Committed", show: rate }]);
  live({ scope: "group", name }, {
    history: (history) => [lag, progress].forEach((chart) => chart.load(history)),
    moment: ({ time, values }) => [lag, progress].forEach((chart) => chart.add(time, values)),
  }, signal);
  const group = await get("group", { name }, signal);
  let current = group;
  const partitions = h("div", {});
  const members = h("div", {});
  const summary = h("div", {});
  const draw = (view) => {
    current = view;
    replace(summary, factsOf(view), view.rebalance && h("p", { class: "soft" }, `Last rebalance ${moment(Date.parse(view.rebalance.at)).slice(0, 19)}: ${view.rebalance.cause}`));
    if (!isInUse(partitions)) replace(partitions, partitionsOf(view));
    if (!isInUse(members)) replace(members, membersOf(view));
  };
  draw(group);
  every(5, async () => {
    try {
      draw(await get("group", { name }, signal));
    } catch (failure) {
      if (failure.name !== "AbortError") await fill(summary, () => { throw failure; }, signal);
    }
  }, signal);
  const reload = async () => draw(await get("group", { name }, signal));
  const actions = session.is_readonly ? [] : [
    h("button", { type: "button", class: "primary", onclick: () => resetOffsets(current, reload) }, "Reset offsets"),
    h("button", { type: "button", class: "danger", onclick: () => deleteGroup(context, current) }, "Delete"),
  ];
  replace(holder, summary, h("div", { class: "columns" }, lag.element, progress.element),
    h("section", { class: "card flush" }, h("h2", {}, "Partitions"), partitions), h("section", { class: "card flush" }, h("h2", {}, "Members"), members));
  return [pageHead(name, { crumbs: [["Consumer groups", place("groups")]], tags: [stateTag(group.state), name.startsWith("spark-") && tag("Spark query", "accent")], actions }), holder];
}

const factsOf = (group) => facts([
  ["Lag", compact(group.lag)],
  ["Behind", duration(group.behind_s)],
  ["Commits", rate(group.progress)],
  ["Members", count(group.members.length)],
  ["Protocol", group.kind === "consumer" ? "consumer (new)" : group.kind, { small: true }],
  group.assignor && ["Assignor", group.assignor, { small: true }],
  group.coordinator && ["Coordinator", group.coordinator, { small: true }],
]);

function partitionsOf(group) {
  if (!group.partitions.length) return empty("Nothing assigned or committed", "Members get partitions when they subscribe to a topic that exists.");
  const most = Math.max(1, ...group.partitions.map((one) => one.lag ?? 0));
  return plainTable(`Partitions of ${group.name}`, [
    { label: "Topic", cell: (row) => topicLink(row.topic) },
    { label: "Partition", number: true, cell: (row) => row.partition },
    { label: "Committed", number: true, cell: (row) => count(row.committed) },
    { label: "End", number: true, cell: (row) => (row.problem ? tag(row.problem, "bad") : count(row.end)) },
    { label: "Lag", number: true, cell: (row) => [count(row.lag), h("span", { class: "lagbar", "aria-hidden": "true" }, h("i", { css: { width: `${((row.lag ?? 0) / most) * 100}%` } }))] },
    { label: "Behind", number: true, cell: (row) => duration(row.behind_s) },
    { label: "Read by", cell: (row) => row.owner ?? h("span", { class: "soft" }, "nobody") },
  ], group.partitions);
}

function membersOf(group) {
  if (!group.members.length) return empty("No members", group.name.startsWith("spark-")
    ? "A Spark query reads without joining: it commits here how far it is."
    : "Nobody is consuming now. Offsets stay until they expire.");
  return plainTable(`Members of ${group.name}`, [
    { label: "Client", cell: (row) => h("span", { title: row.member_id, class: "name" }, row.client_id || row.member_id) },
    { label: "Host", cell: (row) => row.host || DASH },
    { label: "Static id", cell: (row) => row.instance_id ?? DASH },
    { label: "Assigned", cell: (row) => assignment(row) },
  ], group.members);
}

function assignment(member) {
  const entries = Object.entries(member.assignment);
  if (!entries.length) return h("span", { class: "soft" }, "nothing");
  return [entries.map(([topic, partitions], index) => [index ? "; " : "", topicLink(topic), ` ${ranges(partitions)}`]),
    member.gives_back.length > 0 && [" ", tag(`gives back ${member.gives_back.length}`, "warn")]];
}

const deleteGroup = ({ router }, group) => confirmByName({
  title: "Delete the group", name: group.name, action: "Delete group",
  text: "What it has committed is forgotten: consumers that come back begin where auto.offset.reset says.",
  submit: async () => {
    await post("group/delete", { name: group.name });
    toast(`${group.name} was deleted.`);
    router.go(place("groups"));
  },
});
