// What the doctor finds: each thing with why it matters and what to do.

import { get, post } from "../api.js";
import { announce, h, replace } from "../dom.js";
import { moment, plural } from "../format.js";
import { empty, every, pageHead, problem } from "../parts.js";

export async function render({ signal }) {
  const holder = h("div", { class: "stack" });
  const button = h("button", { type: "button", class: "primary", onclick: () => begin() }, "Examine now");
  let isRunning = false;
  const draw = (state) => {
    const wasRunning = isRunning;
    isRunning = state.is_running;
    button.disabled = isRunning;
    button.classList.toggle("busy", isRunning);
    replace(holder, isRunning && h("div", { class: "note", role: "status" }, state.said), state.error && problem(new Error(state.error)),
      state.report ? reportOf(state.report) : !isRunning && h("div", { class: "card" }, empty("Not examined yet", "The doctor asks every broker, looks at partitions, disks, transactions and groups, and looks twice at groups that seem stuck. It changes nothing and takes some seconds.")));
    if (wasRunning && !isRunning && state.report) announce(plural(state.report.findings.length, "finding"));
  };
  const begin = async () => {
    try {
      draw(await post("doctor/run", {}, signal));
    } catch (failure) {
      if (failure.name !== "AbortError") replace(holder, problem(failure, begin));
    }
  };
  draw(await get("doctor", {}, signal));
  every(1, async () => {
    if (isRunning) draw(await get("doctor", {}, signal).catch(() => ({ is_running: false, report: null, error: "The gateway did not answer." })));
  }, signal);
  return [pageHead("Doctor", { actions: [button] }), holder];
}

function reportOf(report) {
  return [
    h("p", { class: "soft" }, `Examined ${moment(report.at_ms).slice(0, 19)}: ${report.findings.length ? plural(report.findings.length, "finding") : "nothing is wrong"}.`),
    report.findings.length > 0 && h("div", { class: "findings" }, report.findings.map((one) => h("section", { class: "card finding" }, h("h2", {}, one.what),
      h("dl", {}, h("dt", {}, "Why it matters"), h("dd", {}, one.why), h("dt", {}, "What to do"), h("dd", {}, one.todo))))),
    report.notes.length > 0 && h("section", { class: "card" }, h("h2", {}, "Worth knowing"), h("ul", { class: "checks notes" }, report.notes.map((text) => h("li", {}, text)))),
    report.sound.length > 0 && h("section", { class: "card" }, h("h2", {}, "In order"), h("ul", { class: "checks" }, report.sound.map((text) => h("li", {}, text)))),
  ];
}
