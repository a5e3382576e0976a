// Moving a group: what would change is shown first, and only then can it be done.

import { post } from "../api.js";
import { ask } from "../dialog.js";
import { field, h, replace, select, toast } from "../dom.js";
import { count, plural } from "../format.js";
import { plainTable } from "../table.js";

const TARGETS = [["earliest", "To the oldest message"], ["latest", "To the end: skip everything"], ["time", "To a time"], ["shift", "By a number of messages"], ["offset", "To an offset"]];

export function resetOffsets(group, reload) {
  const topics = [...new Set(group.partitions.map((one) => one.topic))].sort();
  const topic = select([["", "All it has committed"], ...topics.map((name) => [name, name])], "");
  const partitions = h("input", { placeholder: "all", pattern: "[0-9, ]*", autocomplete: "off" });
  const to = select(TARGETS, "earliest");
  const time = h("input", { type: "datetime-local", step: 1 });
  const amount = h("input", { type: "number", step: 1, value: 0 });
  const timeField = field("Time", time);
  const amountField = field("How many, or which", amount, "Negative goes back.");
  const partitionsField = field("Partitions", partitions, "Numbers with commas; empty means all.");
  const plan = h("div", { role: "status" });
  let planned = null;
  const fit = () => {
    timeField.hidden = to.value !== "time";
    amountField.hidden = !["shift", "offset"].includes(to.value);
    partitionsField.hidden = !topic.value;
  };
  const forget = () => {
    planned = null;
    replace(plan);
    dialog.querySelector("button[type=submit]").textContent = "Show what would change";
    fit();
  };
  const body = (execute) => ({
    name: group.name, to: to.value, execute, topic: topic.value || null,
    partitions: topic.value ? partitions.value.split(",").map((one) => one.trim()).filter(Boolean).map(Number) : [],
    amount: to.value === "time" ? new Date(time.value).getTime() : Number(amount.value) || 0,
  });
  const dialog = ask({
    title: `Reset offsets of ${group.name}`, action: "Show what would change",
    body: [
      group.members.length > 0 && h("p", { class: "note warn" }, `The group has ${plural(group.members.length, "member")}. Stop them first: only a group without members can be moved.`),
      h("div", { class: "pair" }, field("Topic", topic), partitionsField), h("div", { class: "pair" }, field("Move", to), timeField, amountField), plan,
    ],
    submit: async (form, { setAction }) => {
      if (to.value === "time" && !time.value) throw new Error("Choose a time.");
      if (planned) {
        const done = await post("group/reset", { ...planned, execute: true });
        toast(`${plural(done.partitions.length, "partition")} of ${group.name} moved.`);
        await reload();
        return false;
      }
      const asked = body(false);
      const answer = await post("group/reset", asked);
      planned = asked;
      const moves = answer.partitions.filter((one) => one.old !== one.new).length;
      replace(plan, h("p", {}, `${plural(moves, "partition")} would move. Nothing has been changed yet.`), h("div", { class: "card flush" }, plainTable("What would change", [
        { label: "Partition", cell: (row) => `${row.topic} ${row.partition}` },
        { label: "Now", number: true, cell: (row) => count(row.old) },
        { label: "Then", number: true, cell: (row) => count(row.new) },
        { label: "Change", number: true, cell: (row) => (row.old === null ? "new" : `${row.new > row.old ? "+" : ""}${count(row.new - row.old)}`) },
      ], answer.partitions.slice(0, 500))));
      setAction("Move the group");
      return true;
    },
  });
  for (const control of [topic, to, time, amount, partitions]) control.addEventListener("input", forget);
  fit();
}
