// Subjects of the schema registry.

import { post } from "../api.js";
import { ask } from "../dialog.js";
import { field, h, select, toast } from "../dom.js";
import { count } from "../format.js";
import { empty, pageHead, tag } from "../parts.js";
import { place } from "../router.js";
import { ListTable } from "../table.js";

export const KINDS = [["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]];
export const kindName = (kind) => KINDS.find(([key]) => key === kind)?.[1] ?? kind ?? "–";

export async function render(context) {
  const level = h("span", {});
  const create = !context.session.is_readonly && h("button", { type: "button", class: "primary", onclick: () => registerSchema(context) }, "Register schema");
  const table = new ListTable({
    context, path: "subjects", rows: "subjects", label: "subjects",
    loaded: (answer) => { level.textContent = `Compatibility unless a subject says otherwise: ${answer.level}`; },
    empty: (search) => (search ? empty("No subject matches", `Nothing contains “${search}”.`)
      : empty("No schemas yet", "Serializers register theirs when they first write; or register one here.", create && h("button", { type: "button", class: "primary", onclick: () => registerSchema(context) }, "Register schema"))),
    columns: [
      { label: "Subject", sort: "name", cell: (row) => h("a", { class: "name", href: place("schemas", row.name) }, row.name) },
      { label: "Kind", cell: (row) => kindName(row.kind) },
      { label: "Versions", sort: "versions", number: true, cell: (row) => count(row.versions) },
      { label: "Latest id", number: true, cell: (row) => row.id ?? "–" },
      { label: "Compatibility", cell: (row) => tag(row.level, row.level === "NONE" ? "warn" : "") },
    ],
  });
  await table.load(false);
  return [pageHead("Schemas", { actions: [create] }), h("p", { class: "soft" }, level), table.element];
}

// A new subject, or the next version of one: checked first, registered then.
export function registerSchema({ router }, subject, kind = "AVRO", text = "") {
  const name = h("input", { required: true, value: subject ?? "", placeholder: "orders-value", autocomplete: "off", spellcheck: "false", readonly: Boolean(subject) });
  const kinds = select(KINDS, kind);
  const schema = h("textarea", { required: true, rows: 14, value: text, spellcheck: "false" });
  let isChecked = false;
  const outcome = h("div", { role: "status" });
  const dialog = ask({
    title: subject ? `New version of ${subject}` : "Register a schema", action: "Check",
    body: [h("div", { class: "pair" }, field("Subject", name), field("Kind", kinds)), field("Schema", schema), outcome],
    submit: async (form, { setAction }) => {
      const body = { name: name.value, kind: kinds.value, text: schema.value };
      if (isChecked) {
        const { id } = await post("subject/register", body);
        toast(`Registered with id ${id}.`);
        router.go(place("schemas", name.value));
        return false;
      }
      const answer = await post("subject/check", body);
      outcome.replaceChildren(verdict(answer));
      isChecked = answer.is_valid && answer.is_compatible;
      if (isChecked) setAction("Register");
      return true;
    },
  });
  for (const control of [name, kinds, schema]) {
    control.addEventListener("input", () => {
      isChecked = false;
      outcome.replaceChildren();
      dialog.querySelector("button[type=submit]").textContent = "Check";
    });
  }
}

function verdict(answer) {
  if (!answer.is_valid) return h("div", { class: "note bad" }, h("strong", {}, "Not a schema"), answer.problem);
  if (answer.is_compatible) return h("div", { class: "note good" }, `It may follow under ${answer.level}.`);
  return h("div", { class: "note bad" }, h("strong", {}, `It does not get along with version ${answer.against} under ${answer.level}`),
    h("ul", {}, answer.differences.slice(0, 20).map((one) => h("li", {}, `${one.message} (${one.kind}${one.path ? ` at ${one.path}` : ""})`))));
}
