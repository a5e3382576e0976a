// One message, written by hand: to a partition or by its key, as text, JSON, bytes, or encoded by a schema.

import { post } from "../api.js";
import { ask } from "../dialog.js";
import { field, h, select, toast } from "../dom.js";
import { count } from "../format.js";

// `copied`: a message to begin with, as the browser shows it.
export function produceMessage({ session }, topic, copied) {
  const partition = select([["", "by key"], ...topic.rows.map((row) => [row.partition, row.partition])], "");
  const key = part("Key", session, copied?.key, "null");
  const value = part("Value", session, copied?.value, "text");
  const headers = h("textarea", { rows: 2, spellcheck: "false", placeholder: "trace-id: 4bf92f35", value: (copied?.headers ?? []).map((one) => `${one.name}: ${one.text}`).join("\n") });
  ask({
    title: `Produce to ${topic.name}`, action: "Produce",
    body: [field("Partition", partition), key.element, value.element, field("Headers", headers, "One name: value on each line.")],
    opened: () => value.data.focus(),
    submit: async () => {
      const delivered = await post("messages/produce", {
        topic: topic.name, partition: partition.value === "" ? null : Number(partition.value),
        key: key.read(), value: value.read(), headers: parseHeaders(headers.value),
      });
      toast(`Written to partition ${delivered.partition} at offset ${count(delivered.offset)}.`);
    },
  });
}

function part(label, session, copied, usual) {
  const formats = [["null", "null"], ["text", "text"], ["json", "JSON"], ["base64", "base64"], ...(session.has_registry ? [["schema", "by schema"]] : [])];
  const chosen = copied ? { null: "null", json: "json", text: "text", empty: "text", hex: "base64" }[copied.kind] ?? "schema" : usual;
  const data = h("textarea", { rows: label === "Key" ? 1 : 6, spellcheck: "false", "aria-label": label, value: copied ? (copied.kind === "hex" ? toBase64(copied.text) : copied.text) : "" });
  const subject = h("input", { placeholder: `the topic's -${label.toLowerCase()} subject`, "aria-label": `${label}: subject`, autocomplete: "off" });
  const format = select(formats, chosen, { "aria-label": `${label}: format` });
  const fit = () => {
    data.hidden = format.value === "null";
    subject.hidden = format.value !== "schema";
  };
  format.addEventListener("change", fit);
  fit();
  return {
    data,
    element: h("div", { class: "field" }, h("span", {}, label), h("div", { class: "pick" }, format, h("div", { class: "grow" }, subject)), data),
    read: () => ({ format: format.value, data: data.value, ...(subject.value && { subject: subject.value }) }),
  };
}

const toBase64 = (hex) => btoa(hex.split(" ").filter(Boolean).map((pair) => String.fromCharCode(parseInt(pair, 16))).join(""));

function parseHeaders(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`“${line}” is to be name: value.`);
    return { name: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
  });
}
