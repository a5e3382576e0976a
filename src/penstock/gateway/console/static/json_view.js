// JSON laid out for reading, token by token: numbers stay as they were written (no rounding of 64-bit ones), nothing is
// parsed into values, and text that is no JSON after all is shown as it is.

import { h } from "./dom.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN|-?Infinity|[{}[\],:]|\s+/y;
const HIGHLIGHT_MAX = 200000;

export function jsonView(text) {
  const pre = h("pre", { class: "code", tabindex: 0 });
  if (text.length > HIGHLIGHT_MAX) {
    // Hundreds of thousands of elements would stop the page; plain text does not.
    pre.textContent = layOut(text).map(([, token]) => token).join("");
    return pre;
  }
  for (const [kind, token] of layOut(text)) {
    pre.append(kind ? h("span", { class: `t-${kind}` }, token) : token);
  }
  return pre;
}

// [[kind, text], …]: kind is key, string, number, word, or "" for what holds them together.
export function layOut(text) {
  const tokens = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const found = TOKEN.exec(text);
    if (!found) return [...format(tokens), ["", text.slice(at)]];
    if (found[0].trim()) tokens.push(found[0]);
  }
  return format(tokens);
}

function format(tokens) {
  const out = [];
  let depth = 0;
  const line = () => out.push(["", `\n${"  ".repeat(depth)}`]);
  tokens.forEach((token, index) => {
    const next = tokens[index + 1];
    if (token === "{" || token === "[") {
      out.push(["", token]);
      depth += 1;
      if (next !== "}" && next !== "]") line();
    } else if (token === "}" || token === "]") {
      depth = Math.max(0, depth - 1);
      if (tokens[index - 1] !== "{" && tokens[index - 1] !== "[") line();
      out.push(["", token]);
    } else if (token === ",") {
      out.push(["", ","]);
      line();
    } else if (token === ":") out.push(["", ": "]);
    else out.push([kindOf(token, next), token]);
  });
  return out;
}

function kindOf(token, next) {
  if (token.startsWith('"')) return next === ":" ? "key" : "string";
  return /^[tfnNI]|^-I/.test(token) ? "word" : "number";
}
