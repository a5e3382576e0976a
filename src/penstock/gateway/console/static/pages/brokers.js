// Brokers: what each leads and holds, its disks, and its settings.

import { get } from "../api.js";
import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { empty, every, fill, pageHead, tag } from "../parts.js";
import { place } from "../router.js";
import { configTable } from "./topic_configs.js";

export async function render(context) {
  const { parameters, signal } = context;
  if (parameters.id !== undefined) return renderOne(context);
  const holder = h("div", { class: "columns" });
  const load = async () => {
    const view = await get("overview", {}, signal);
    const processes = Object.entries(view.processes);
    return [view.brokers.map((broker) => card(broker, view)), view.missing_brokers.map(missing), processes.length > 0 && processCard(processes)];
  };
  await fill(holder, load, signal);
  every(5, () => fill(holder, load, signal), signal);
  return [pageHead("Brokers"), holder];
}

function card(broker, view) {
  const share = view.partitions ? Math.round((broker.leads / view.partitions) * 100) : 0;
  return h("section", { class: "card" },
    h("div", { class: "title" }, h("h2", {}, `Broker ${broker.id}`), h("div", { class: "row" }, broker.is_controller && tag("controller", "accent"), broker.rack && tag(`rack ${broker.rack}`))),
    h("dl", { class: "headers" },
      h("dt", {}, "Address"), h("dd", {}, broker.address),
      h("dt", {}, "Leads"), h("dd", {}, `${count(broker.leads)} partitions (${share} %)`),
      h("dt", {}, "Holds"), h("dd", {}, `${count(broker.holds)} replicas`)),
    broker.log_dirs.map(disk),
    h("p", { class: "row" }, h("a", { href: place("brokers", broker.id) }, "Settings")));
}

function disk(dir) {
  const isKnown = dir.total_bytes !== null && dir.usable_bytes !== null;
  const used = isKnown ? 1 - dir.usable_bytes / dir.total_bytes : 0;
  const tone = used > 0.95 ? "bad" : used > 0.85 ? "warn" : "";
  const text = isKnown ? `${bytes(dir.usable_bytes)} free of ${bytes(dir.total_bytes)}, logs take ${bytes(dir.used_bytes)}` : `logs take ${bytes(dir.used_bytes)}`;
  return h("div", { class: "broker" }, h("div", {}, h("code", {}, dir.path), " ", dir.error && tag(dir.error, "bad"),
    h("div", { class: "soft" }, text), isKnown && h("div", { class: `meter ${tone}` }, h("div", { css: { width: `${Math.max(1, used * 100)}%` } }))));
}

const missing = (id) => h("section", { class: "card" }, h("div", { class: "title" }, h("h2", {}, `Broker ${id}`), tag("not there", "bad")),
  h("p", {}, "It holds replicas and does not answer. Start it, or move its replicas with ", h("code", {}, "penstock cluster drain"), "."));

function processCard(processes) {
  return h("section", { class: "card" }, h("h2", {}, "Processes"), processes.map(([address, figures]) => h("dl", { class: "headers broker" },
    h("dt", {}, "Metrics"), h("dd", {}, address),
    h("dt", {}, "Up"), h("dd", {}, duration(figures.uptime_s)),
    h("dt", {}, "Memory"), h("dd", {}, bytes(figures.memory_bytes)),
    h("dt", {}, "Connections"), h("dd", {}, count(figures.connections)))));
}

async function renderOne(context) {
  const { parameters, signal } = context;
  const holder = h("div", {});
  await fill(holder, () => configTable(context, "broker", parameters.id), signal);
  return [pageHead(`Broker ${parameters.id}`, { crumbs: [["Brokers", place("brokers")]] }), holder.childElementCount ? holder : empty("No settings", "The broker told none.")];
}
