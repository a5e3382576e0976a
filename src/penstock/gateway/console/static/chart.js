// A line chart of a few series over time, and the same figures as a table for those who read rather than look.

import { h, replace, svg } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 168;
const LEFT = 64;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const SAMPLES_MAX = 180;
const TABLE_ROWS = 60;

export class Chart {
  // `series`: [{key, label, show}], drawn in this order; `show` writes a value.
  // `base`: 1024 for bytes, whose round numbers are others.
  constructor(title, series, base = 10) {
    this.series = series;
    this.base = base;
    this.times = [];
    this.values = Object.fromEntries(series.map(({ key }) => [key, []]));
    this.pointed = null;
    this.canvas = svg("svg", { role: "img", tabindex: 0, "aria-label": title, height: HEIGHT });
    this.legend = h("div", { class: "legend" });
    this.figures = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}: figures` });
    this.details = h("details", { class: "figures", ontoggle: () => this.drawTable() }, h("summary", {}, "Figures"), this.figures);
    this.element = h("figure", { class: "chart card" },
      h("figcaption", {}, h("h2", {}, title)), this.legend, this.canvas, this.details);
    this.title = title;
    this.canvas.addEventListener("pointermove", (event) => this.point(this.nearest(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("blur", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // All of it anew: {times, series: {key: values}}.
  load(history) {
    this.times = history.times.slice(-SAMPLES_MAX);
    for (const { key } of this.series) this.values[key] = (history.series[key] ?? []).slice(-SAMPLES_MAX);
    this.draw();
  }

  add(time, values) {
    if (time === null || time === this.times.at(-1)) return;
    this.times.push(time);
    for (const { key } of this.series) this.values[key].push(values[key] ?? null);
    if (this.times.length > SAMPLES_MAX) {
      this.times.shift();
      for (const { key } of this.series) this.values[key].shift();
    }
    this.draw();
  }

  step(event) {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !this.times.length) return;
    event.preventDefault();
    const from = this.pointed ?? this.times.length - (move < 0 ? 0 : 1);
    this.point(Math.min(this.times.length - 1, Math.max(0, from + move)));
  }

  point(index) {
    this.pointed = index;
    this.draw();
  }

  nearest(x) {
    if (!this.times.length) return null;
    let best = 0;
    for (let one = 0; one < this.times.length; one += 1) {
      if (Math.abs(this.x(this.times[one]) - x) < Math.abs(this.x(this.times[best]) - x)) best = one;
    }
    return best;
  }

  x(time) {
    const [from, to] = [this.times[0], this.times.at(-1)];
    return LEFT + ((time - from) / Math.max(1, to - from)) * (this.width - LEFT - RIGHT);
  }

  y(value) {
    return HEIGHT - BOTTOM - (value / this.top) * (HEIGHT - TOP - BOTTOM);
  }

  draw() {
    this.width = this.canvas.clientWidth || 400;
    const all = this.series.flatMap(({ key }) => this.values[key]).filter((value) => value !== null);
    this.top = niceTop(Math.max(0, ...all), this.base);
    let last = "";
    const isEmpty = this.times.length < 2;
    const shapes = [0, 0.5, 1].map((share) => {
      const text = isEmpty ? "" : this.series[0].show(this.top * share);
      // Of whole numbers, a half may read as the next one.
      const label = text === last ? "" : text;
      last = text;
      const y = Math.round(this.y(this.top * share)) + 0.5;
      return [
        svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: y, y2: y }),
        svg("text", { x: LEFT - 8, y: y + 4, "text-anchor": "end" }, label),
      ];
    });
    if (!isEmpty) {
      shapes.push(this.timeLabels());
      this.series.forEach(({ key }, index) => shapes.push(this.line(key, index)));
    } else {
      shapes.push(svg("text", { x: this.width / 2, y: HEIGHT / 2 - 14, "text-anchor": "middle" }, "Measuring; the first figures come in a few seconds"));
    }
    if (this.pointed !== null && this.pointed < this.times.length && this.times.length > 1) {
      const x = this.x(this.times[this.pointed]);
      shapes.push(svg("line", { class: "cross", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    }
    replace(this.canvas, shapes);
    this.drawLegend();
    this.drawTable();
  }

  line(key, index) {
    const runs = [[]];
    this.values[key].forEach((value, at) => {
      // A gap stays a gap: nothing was measured there.
      if (value === null) runs.push([]);
      else runs.at(-1).push([this.x(this.times[at]), this.y(value)]);
    });
    return runs.filter((run) => run.length).map((run) => {
      const points = run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
      const base = this.y(0).toFixed(1);
      const line = svg("path", { class: `path s${index + 1}`, d: `M${points}${run.length === 1 ? "h.1" : ""}`, fill: "none" });
      const area = index === 0 && svg("path", { class: `area s${index + 1}`, d: `M${run[0][0]} ${base}L${points}L${run.at(-1)[0]} ${base}Z` });
      return [area, line];
    });
  }

  timeLabels() {
    const labels = Math.max(2, Math.min(5, Math.floor(this.width / 130)));
    const [from, to] = [this.times[0], this.times.at(-1)];
    return Array.from({ length: labels }, (_, one) => {
      const time = from + ((to - from) * one) / (labels - 1);
      const anchor = one === 0 ? "start" : one === labels - 1 ? "end" : "middle";
      return svg("text", { x: this.x(time), y: HEIGHT - 5, "text-anchor": anchor }, clock(time, to - from < 300000));
    });
  }

  drawLegend() {
    const at = this.pointed ?? this.times.length - 1;
    const shown = this.series.map(({ key, label, show }, index) =>
      h("span", {}, h("i", { class: `s${index + 1}` }), label, h("b", {}, show(this.values[key][at] ?? null))));
    const time = this.pointed !== null && this.times[at] !== undefined && h("span", {}, clock(this.times[at]));
    replace(this.legend, shown, time);
    const spoken = this.series.map(({ key, label, show }) => `${label} ${show(this.values[key][at] ?? null)}`).join(", ");
    this.canvas.setAttribute("aria-label", `${this.title}: ${spoken}`);
  }

  drawTable() {
    if (!this.details.open) return;
    const rows = this.times.map((time, index) => [time, index]).slice(-TABLE_ROWS).reverse();
    replace(this.figures, h("table", {}, h("caption", { class: "visually-hidden" }, this.title),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), this.series.map(({ label }) => h("th", { class: "number", scope: "col" }, label)))),
      h("tbody", {}, rows.map(([time, index]) => h("tr", {}, h("td", {}, clock(time)),
        this.series.map(({ key, show }) => h("td", { class: "number" }, show(this.values[key][index] ?? null))))))));
  }
}

// The next round number above: an axis that changes rarely.
function niceTop(value, base) {
  if (value <= 0) return base === 10 ? 1 : base;
  const unit = base === 10 ? 1 : base ** Math.floor(Math.log(value) / Math.log(base));
  const size = 10 ** Math.floor(Math.log10(value / unit));
  return unit * size * [1, 2, 2.5, 5, 10].find((step) => step * size * unit >= value);
}
