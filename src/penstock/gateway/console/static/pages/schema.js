// One subject: its versions side by side, its fields, what may follow.

import { get, post } from "../api.js";
import { confirmByName } from "../dialog.js";
import { field, h, replace, select, toast } from "../dom.js";
import { layOut } from "../json_view.js";
import { empty, facts, pageHead, tag } from "../parts.js";
import { place } from "../router.js";
import { plainTable } from "../table.js";
import { sideBySide } from "./diff.js";
import { kindName, registerSchema } from "./schemas.js";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];

export async function render(context) {
  const { parameters: { name }, query, router, session, signal } = context;
  const subject = await get("subject", { name }, signal);
  const latest = subject.versions[0];
  if (!latest) return [pageHead(name, { crumbs: [["Schemas", place("schemas")]] }), empty("No versions", "All were deleted.")];
  const choices = subject.versions.map((one) => [one.version, `Version ${one.version} (id ${one.id})`]);
  const right = select(choices, query.version ?? latest.version);
  const left = select([["", "Nothing: show one"], ...choices], query.with ?? subject.versions[1]?.version ?? "");
  const view = h("div", {});
  const find = (version) => subject.versions.find((one) => String(one.version) === String(version));
  const draw = () => {
    const [older, newer] = [find(left.value), find(right.value) ?? latest];
    replace(view, older && older !== newer
      ? sideBySide(`Version ${older.version}`, readable(older), `Version ${newer.version}`, readable(newer))
      : h("pre", { class: "code", tabindex: 0 }, readable(newer)),
    newer.references.length > 0 && h("p", { class: "soft" }, "Uses ", newer.references.map((one, index) => [index ? ", " : "", h("a", { href: place("schemas", one.subject) }, `${one.subject} version ${one.version}`), ` as ${one.name}`])));
  };
  for (const control of [left, right]) control.addEventListener("change", () => { router.update({ version: right.value, with: left.value }, true); draw(); });
  draw();
  const actions = session.is_readonly ? [] : [
    h("button", { type: "button", class: "primary", onclick: () => registerSchema(context, name, latest.kind, readable(latest)) }, "New version"),
    h("button", { type: "button", class: "danger", onclick: () => deleteSubject(context, name) }, "Delete"),
  ];
  return [
    pageHead(name, { crumbs: [["Schemas", place("schemas")]], tags: [tag(kindName(latest.kind), "accent")], actions }),
    h("div", { class: "stack" },
      facts([["Latest version", latest.version], ["Schema id", latest.id], ["Versions", subject.versions.length], ["Compatibility", subject.level, { small: true }]]),
      h("section", { class: "card flush" }, h("div", { class: "title" }, h("h2", {}, "Versions"), h("div", { class: "versions" }, field("Compare", left), field("With", right))), h("div", { class: "card-body" }, view)),
      !session.is_readonly && levelCard(subject),
      subject.fields.length > 0 && h("section", { class: "card flush" }, h("h2", {}, "Fields of the latest version"), plainTable("Fields", [
        { label: "Field", cell: (row) => h("code", {}, row.name || "(value)") },
        { label: "Type", cell: (row) => h("code", {}, row.type) },
        { label: "Default", cell: (row) => (row.default === null ? "–" : h("code", {}, row.default)) },
        { label: "Description", cell: (row) => row.doc || "–" },
      ], subject.fields))),
  ];
}

const readable = ({ kind, text }) => (kind === "PROTOBUF" ? text : layOut(text).map(([, token]) => token).join(""));

function levelCard(subject) {
  const level = select([["", "As the registry has it"], ...LEVELS.map((one) => [one, one])], subject.is_own_level ? subject.level : "");
  const save = async () => {
    try {
      const answer = await post("subject/level", { name: subject.name, level: level.value || null });
      toast(`Compatibility is ${answer.level} now.`);
    } catch (failure) {
      toast(failure.message, true);
    }
  };
  return h("section", { class: "card" }, h("h2", {}, "What may follow"), h("div", { class: "versions" }, field("Compatibility of new versions", level), h("button", { type: "button", onclick: save }, "Save")));
}

const deleteSubject = ({ router }, name) => confirmByName({
  title: "Delete the subject", name, action: "Delete subject",
  text: "All its versions are hidden from new writers. Data written with them stays readable, and their ids are not given again.",
  submit: async () => {
    await post("subject/delete", { name });
    toast(`${name} was deleted.`);
    router.go(place("schemas"));
  },
});
