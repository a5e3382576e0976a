// Two texts side by side, line by line: what is gone on the left, what has come on the right.

import { h } from "../dom.js";

// Beyond this the exact comparison would take too long; equal beginnings and ends are still found.
const CELLS_MAX = 4000000;

export function sideBySide(leftTitle, left, rightTitle, right) {
  const rows = align(left.split("\n"), right.split("\n"));
  const cell = (number, text, tone) => [h("td", { class: "n" }, number ?? ""), h("td", { class: tone }, text ?? "")];
  return h("div", { class: "diff", tabindex: 0, role: "region", "aria-label": `${leftTitle} and ${rightTitle}` }, h("table", {},
    h("colgroup", {}, ["n", "", "n", ""].map((name) => h("col", { class: name }))),
    h("thead", {}, h("tr", {}, [leftTitle, rightTitle].map((title) => h("th", { colspan: 2, scope: "col" }, title)))),
    h("tbody", {}, rows.map(([a, b]) => h("tr", {},
      cell(a?.number, a?.text, a && (!b || a.text !== b.text) ? "gone" : ""),
      cell(b?.number, b?.text, b && (!a || a.text !== b.text) ? "come" : ""))))));
}

// Pairs of lines; one of a pair is undefined where the other side has nothing like it.
export function align(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
  const rows = [];
  const same = (i, j) => rows.push([{ number: i + 1, text: a[i] }, { number: j + 1, text: b[j] }]);
  for (let i = 0; i < start; i += 1) same(i, i);
  middle(a, b, start, a.length - end, b.length - end, rows, same);
  for (let i = end; i > 0; i -= 1) same(a.length - i, b.length - i);
  return rows;
}

// Longest common subsequence of what lies between.
function middle(a, b, start, endA, endB, rows, same) {
  const [n, m] = [endA - start, endB - start];
  const isLarge = n * m > CELLS_MAX;
  const lengths = isLarge ? null : Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; !isLarge && i >= 0; i -= 1) {
    for (let j = m - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[start + i] === b[start + j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  let [gone, come] = [[], []];
  const flush = () => {
    for (let k = 0; k < Math.max(gone.length, come.length); k += 1) {
      rows.push([gone[k] === undefined ? undefined : { number: gone[k] + 1, text: a[gone[k]] }, come[k] === undefined ? undefined : { number: come[k] + 1, text: b[come[k]] }]);
    }
    [gone, come] = [[], []];
  };
  let [i, j] = [0, 0];
  while (i < n || j < m) {
    if (!isLarge && i < n && j < m && a[start + i] === b[start + j]) {
      flush();
      same(start + i, start + j);
      i += 1;
      j += 1;
    } else if (j >= m || (i < n && (isLarge || lengths[i + 1][j] >= lengths[i][j + 1]))) {
      gone.push(start + i);
      i += 1;
    } else {
      come.push(start + j);
      j += 1;
    }
  }
  flush();
}
