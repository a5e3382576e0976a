// The cluster at a glance: is it well, how busy is it, what needs a look.

import { get, live } from "../api.js";
import { Chart } from "../chart.js";
import { h, replace } from "../dom.js";
import { byteRate, bytes, compact, count, milliseconds, plural, rate } from "../format.js";
import { empty, every, facts, fill, groupLink, pageHead, topicLink } from "../parts.js";
import { place } from "../router.js";

export async function render({ session, signal }) {
  const charts = makeCharts(session);
  const health = h("div", {});
  const figures = h("div", {});
  const lists = h("div", { class: "columns" });
  const failure = h("div", {});
  live({ scope: "cluster" }, {
    history: (history) => charts.forEach((chart) => chart.load(history)),
    moment: ({ time, values, failure: trouble }) => {
      charts.forEach((chart) => chart.add(time, values));
      replace(failure, trouble && h("div", { class: "note bad", role: "alert" }, h("strong", {}, "The cluster did not answer"), trouble));
    },
  }, signal);
  const load = async () => {
    const view = await get("overview", {}, signal);
    replace(health, healthNote(view));
    replace(lists, busiest(view), behind(view));
    return facts([
      ["Brokers", view.brokers.length, { tone: view.missing_brokers.length ? "bad" : "" }],
      ["Topics", count(view.topics - view.internal_topics)],
      ["Partitions", count(view.partitions)],
      ["On disk", bytes(view.size_bytes)],
      ["Consumer groups", count(view.groups)],
      ["Total lag", compact(view.lag), { tone: view.lag > 0 ? "" : "" }],
    ]);
  };
  await fill(figures, load, signal);
  every(5, () => fill(figures, load, signal), signal);
  return [pageHead("Overview"), h("div", { class: "stack" }, failure, health, figures,
    h("div", { class: "columns" }, charts.map((chart) => chart.element)), lists)];
}

function makeCharts(session) {
  const messages = new Chart("Messages per second", [
    { key: "messages_in", label: "Produced", show: rate }, { key: "messages_out", label: session.has_metrics ? "Consumed" : "Committed by groups", show: rate }]);
  const lag = new Chart("Consumer lag, all groups", [{ key: "lag", label: "Messages behind", show: (value) => compact(value === null ? null : Math.round(value)) }]);
  if (!session.has_metrics) return [messages, lag];
  return [
    messages,
    new Chart("Bytes per second", [{ key: "bytes_in", label: "In", show: byteRate }, { key: "bytes_out", label: "Out", show: byteRate }], 1024),
    new Chart("Produce latency", [{ key: "produce_p50", label: "P50", show: milliseconds }, { key: "produce_p99", label: "P99", show: milliseconds }]),
    lag,
  ];
}

function healthNote(view) {
  const troubles = [
    view.offline && `${plural(view.offline, "partition")} without a leader: they can be neither written nor read.`,
    view.missing_brokers.length && `Broker ${view.missing_brokers.join(", ")} holds replicas and is not there.`,
    view.under_replicated && `${plural(view.under_replicated, "partition")} with fewer replicas in sync than ${view.under_replicated === 1 ? "it" : "they"} should have.`,
    view.moving && `${plural(view.moving, "partition")} on the move to other brokers.`,
  ].filter(Boolean);
  if (!troubles.length) return h("div", { class: "note good" }, "All partitions have a leader and all their replicas in sync.");
  const tone = view.offline || view.missing_brokers.length ? "bad" : "warn";
  return h("div", { class: `note ${tone}` }, troubles.map((text) => h("p", {}, text)), h("p", {}, h("a", { href: place("doctor") }, "Let the doctor look")));
}

function busiest(view) {
  return h("section", { class: "card" }, h("div", { class: "title" }, h("h2", {}, "Busiest topics"), h("a", { href: place("topics") }, "All topics")),
    view.busiest.length
      ? h("ul", { class: "ranked" }, view.busiest.map((one) => h("li", {}, topicLink(one.name), h("span", { class: "num" }, rate(one.messages_in)))))
      : view.is_measured ? empty("Quiet", "Nothing was produced in the last seconds.") : empty("Measuring", "The first rates come in a few seconds."));
}

function behind(view) {
  return h("section", { class: "card" }, h("div", { class: "title" }, h("h2", {}, "Groups furthest behind"), h("a", { href: place("groups") }, "All groups")),
    view.behind.length
      ? h("ul", { class: "ranked" }, view.behind.map((one) => h("li", {}, groupLink(one.name), h("span", { class: "num" }, plural(one.lag, "message")))))
      : empty("Nobody is behind", "All groups have read and committed everything."));
}
