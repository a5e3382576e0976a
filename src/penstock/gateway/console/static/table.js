// A list that the gateway searches, sorts and cuts into pages; its state is in the address.

import { get } from "./api.js";
import { announce, h, replace } from "./dom.js";
import { count } from "./format.js";
import { every, isInUse, problem } from "./parts.js";

const REFRESH_S = 5;
const SEARCH_MS = 200;

export class ListTable {
  // columns: [{key, label, sort, number, cell(row)}]
  constructor({ context, path, rows, columns, label, empty, parameters = () => ({}), tools = [], loaded = () => {}, refresh = REFRESH_S }) {
    Object.assign(this, { context, path, rows, columns, label, empty, parameters, loaded });
    const { search = "", sort = columns[0].sort, order = "asc", page = "1" } = context.query;
    this.state = { search, sort, order, page: Number(page) || 1 };
    this.input = h("input", { type: "search", class: "search", placeholder: `Search ${label}`, "aria-label": `Search ${label}`, value: search, maxlength: 300, oninput: () => this.search() });
    this.total = h("span", { class: "count", role: "status" });
    this.head = h("tr", {});
    this.body = h("tbody", {});
    this.table = h("table", { class: "cards" }, h("caption", { class: "visually-hidden" }, label), h("thead", {}, this.head), this.body);
    this.foot = h("div", { class: "pager" });
    this.holder = h("div", { class: "card flush" }, h("div", { class: "scroll" }, this.table), this.foot);
    this.element = h("div", {}, h("div", { class: "tools" }, this.input, tools, this.total), this.holder);
    this.drawHead();
    if (refresh) every(refresh, () => isInUse(this.body) || this.load(true), context.signal);
  }

  search() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.change({ search: this.input.value, page: 1 }), SEARCH_MS);
  }

  // Anything of the state; other parameters of the page go through here too, so that the address has them.
  change(changes, isStep = false) {
    Object.assign(this.state, changes);
    const { search, sort, order, page } = this.state;
    const defaults = { search: "", sort: this.columns[0].sort, order: "asc", page: 1 };
    const told = Object.fromEntries(Object.entries({ search, sort, order, page }).filter(([key, value]) => value !== defaults[key]));
    this.context.router.update({ ...this.parameters(), ...told }, isStep);
    this.drawHead();
    return this.load(false);
  }

  async load(isQuiet) {
    this.loading?.abort();
    this.loading = new AbortController();
    const signal = AbortSignal.any([this.loading.signal, this.context.signal]);
    if (!isQuiet) this.holder.classList.add("loading");
    try {
      const answer = await get(this.path, { ...this.parameters(), ...this.state }, signal);
      this.draw(answer, isQuiet);
      this.loaded(answer);
    } catch (failure) {
      if (failure.name === "AbortError") return;
      replace(this.holder, problem(failure, () => this.load(false)));
      this.isBroken = true;
    } finally {
      if (!signal.aborted) this.holder.classList.remove("loading");
    }
  }

  draw(answer, isQuiet) {
    const rows = answer[this.rows];
    if (this.isBroken || this.isEmpty) {
      replace(this.holder, h("div", { class: "scroll" }, this.table), this.foot);
      this.isBroken = this.isEmpty = false;
    }
    this.total.textContent = `${count(answer.total)} ${this.label}`;
    if (!isQuiet) announce(`${count(answer.total)} ${this.label}`);
    if (!rows.length) {
      this.isEmpty = true;
      replace(this.holder, this.empty(this.state.search, answer));
      return;
    }
    replace(this.body, rows.map((row) => h("tr", {}, this.columns.map((column) =>
      h("td", { class: column.number ? "number" : "", "data-label": column.label }, h("span", {}, column.cell(row)))))));
    this.drawFoot(answer);
  }

  drawHead() {
    if (this.head.contains(document.activeElement)) {
      // Keep the focus where it is: only what is announced changes.
      [...this.head.children].forEach((cell, index) => mark(cell, this.sortOf(this.columns[index])));
      return;
    }
    replace(this.head, this.columns.map((column) => {
      const cell = h("th", { scope: "col", class: column.number ? "number" : "" },
        column.sort ? h("button", { type: "button", onclick: () => this.sort(column) }, column.label) : column.label);
      mark(cell, this.sortOf(column));
      return cell;
    }));
  }

  sortOf(column) {
    if (!column.sort || column.sort !== this.state.sort) return null;
    return this.state.order === "asc" ? "ascending" : "descending";
  }

  sort(column) {
    const isSame = this.state.sort === column.sort;
    // Figures are wanted from the largest down.
    const order = isSame ? (this.state.order === "asc" ? "desc" : "asc") : column.number ? "desc" : "asc";
    this.change({ sort: column.sort, order, page: 1 }, true);
  }

  drawFoot({ page, pages, total, per_page: perPage }) {
    this.state.page = page;
    const go = (to) => h("button", { type: "button", disabled: to < 1 || to > pages, onclick: () => this.change({ page: to }, true) }, to < page ? "Previous" : "Next");
    this.foot.hidden = pages <= 1;
    replace(this.foot, h("span", {}, `${count((page - 1) * perPage + 1)}–${count(Math.min(total, page * perPage))} of ${count(total)}`), go(page - 1), go(page + 1));
  }
}

function mark(cell, order) {
  if (order) cell.setAttribute("aria-sort", order);
  else cell.removeAttribute("aria-sort");
}

// A short table whose rows are all there.
export function plainTable(label, columns, rows, properties = {}) {
  return h("div", { class: "scroll" }, h("table", { class: "cards", ...properties }, h("caption", { class: "visually-hidden" }, label),
    h("thead", {}, h("tr", {}, columns.map(({ label: text, number }) => h("th", { scope: "col", class: number ? "number" : "" }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(({ label: text, number, cell }) =>
      h("td", { class: number ? "number" : "", "data-label": text }, h("span", {}, cell(row)))))))));
}
