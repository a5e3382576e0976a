// Messages as rows, each of which opens: key, value and headers laid out, whole on request, copied or sent again.

import { address, get } from "../api.js";
import { h, replace, toast } from "../dom.js";
import { bytes, count, moment } from "../format.js";
import { jsonView } from "../json_view.js";
import { tag } from "../parts.js";
import { place } from "../router.js";
import { produceMessage } from "./produce.js";

const PREVIEW = 400;
const KINDS = { avro: "Avro", jsonschema: "JSON Schema", protobuf: "Protobuf", json: "JSON", text: "text", hex: "bytes", null: "null", empty: "empty" };
const COLUMNS = ["Offset", "Partition", "Time", "Key", "Value"];

export function messageRows(context, topic) {
  const body = h("tbody", {});
  const element = h("div", { class: "scroll" }, h("table", { class: "cards messages" }, h("caption", { class: "visually-hidden" }, `Messages of ${topic.name}`),
    h("thead", {}, h("tr", {}, COLUMNS.map((label) => h("th", { scope: "col" }, label)))), body));
  return { element, add: (message) => body.append(row(context, topic, message)) };
}

function row(context, topic, message) {
  const open = h("button", { type: "button", class: "open", "aria-expanded": "false", "aria-label": `Message ${message.offset} of partition ${message.partition}` }, count(message.offset));
  const line = h("tr", {},
    h("td", {}, open), h("td", { "data-label": "Partition" }, message.partition),
    h("td", { "data-label": "Time", class: "num" }, h("span", { title: message.is_append_time ? "Time of appending" : "Time of the producer" }, moment(message.timestamp_ms))),
    h("td", { class: "key", "data-label": "Key" }, preview(message.key)), h("td", { class: "value", "data-label": "Value" }, preview(message.value)));
  let detail = null;
  open.addEventListener("click", () => {
    const isOpen = open.getAttribute("aria-expanded") === "true";
    open.setAttribute("aria-expanded", String(!isOpen));
    line.classList.toggle("opened", !isOpen);
    if (isOpen) detail.remove();
    else line.after(detail ??= h("tr", { class: "detail" }, h("td", { colspan: COLUMNS.length }, details(context, topic, message))));
  });
  return line;
}

function preview(part) {
  if (part.kind === "null" || part.kind === "empty") return h("span", { class: "soft" }, KINDS[part.kind]);
  return h("span", { class: "clip" }, part.text.slice(0, PREVIEW), part.text.length > PREVIEW || part.cut ? "…" : "");
}

function details(context, topic, message) {
  const holder = h("div", {});
  const where = { topic: topic.name, partition: message.partition, offset: message.offset };
  const whole = async () => {
    try {
      draw(await get("message", where, context.signal));
    } catch (failure) {
      if (failure.name !== "AbortError") toast(failure.message, true);
    }
  };
  const draw = (shown) => replace(holder,
    part("Value", shown.value, where, "value", whole), part("Key", shown.key, where, "key", whole),
    shown.headers.length > 0 && h("div", { class: "part" }, h("h3", {}, "Headers"), h("dl", { class: "headers" }, shown.headers.map((header) =>
      [h("dt", {}, header.name), h("dd", {}, header.kind === "null" ? h("span", { class: "soft" }, "null") : header.text, header.cut && " …")])),
    shown.headers_left_out > 0 && h("p", { class: "soft" }, `${count(shown.headers_left_out)} more are not shown.`)),
    h("div", { class: "row" },
      !context.session.is_readonly && h("button", { type: "button", onclick: () => produceMessage(context, topic, shown) }, "Produce a copy…"),
      h("a", { class: "button", href: `${place("topics", topic.name)}?from=offset&offset=${message.offset}&partition=${message.partition}` }, "Link to here")));
  draw(message);
  return holder;
}

function part(title, shown, where, name, whole) {
  if (shown.kind === "null" || shown.kind === "empty") return h("div", { class: "part" }, h("div", { class: "row" }, h("h3", {}, title), tag(KINDS[shown.kind])));
  const isJson = ["json", "avro", "jsonschema", "protobuf"].includes(shown.kind);
  const copy = () => navigator.clipboard.writeText(shown.text).then(() => toast("Copied."), () => toast("The browser does not allow copying here.", true));
  return h("div", { class: "part" },
    h("div", { class: "row" }, h("h3", {}, title), tag(KINDS[shown.kind] ?? shown.kind, isJson ? "accent" : ""),
      shown.schema_id !== undefined && tag(`schema ${shown.schema_id}`), h("span", { class: "soft" }, bytes(shown.size)),
      h("button", { type: "button", class: "plain", onclick: copy }, "Copy"),
      shown.cut && h("button", { type: "button", class: "plain", onclick: whole }, "Load whole"),
      h("a", { href: address("message", { ...where, raw: name }), download: "" }, "Raw bytes")),
    shown.note && h("p", { class: "note warn" }, shown.note),
    isJson ? jsonView(shown.text) : h("pre", { class: "code", tabindex: 0 }, shown.text),
    shown.cut && h("p", { class: "soft" }, `The first ${count(shown.text.length)} characters are shown.`));
}
