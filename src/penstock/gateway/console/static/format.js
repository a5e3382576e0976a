// Figures as people read them. What is not known is a dash.

export const DASH = "–";
const grouped = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? DASH : grouped.format(value));
export const compact = (value) => (value === null || value === undefined ? DASH : Math.abs(value) < 10000 ? grouped.format(value) : short.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left >= 100 || unit === 0 ? Math.round(left) : left.toFixed(1)} ${units[unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return DASH;
  if (value === 0) return "0/s";
  if (value < 10) return `${value.toFixed(value < 0.95 ? 2 : 1)}/s`;
  return `${compact(Math.round(value))}/s`;
}

export const byteRate = (value) => (value === null || value === undefined ? DASH : `${bytes(value)}/s`);

export function milliseconds(value) {
  if (value === null || value === undefined) return DASH;
  return value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds < 1) return seconds === 0 ? "0 s" : "< 1 s";
  const steps = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = steps.findIndex(([size]) => seconds >= size);
  const [size, unit] = steps[first];
  const whole = Math.floor(seconds / size);
  const next = steps[first + 1];
  const rest = next ? Math.floor((seconds - whole * size) / next[0]) : 0;
  return rest && whole < 10 ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

const pad = (value, width = 2) => String(value).padStart(width, "0");

// Local time, to the millisecond, in one width: columns of it can be compared.
export function moment(timestampMs) {
  if (timestampMs === null || timestampMs === undefined || timestampMs < 0) return DASH;
  const at = new Date(timestampMs);
  if (Number.isNaN(at.getTime())) return String(timestampMs);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(timestampMs)}.${pad(at.getMilliseconds(), 3)}`;
}

export function clock(timestampMs, withSeconds = true) {
  const at = new Date(timestampMs);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}${withSeconds ? `:${pad(at.getSeconds())}` : ""}`;
}

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

// "1" needs no "partition 1, 2, 3, 4": runs are written as runs.
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const runs = [];
  for (const one of sorted) {
    const last = runs.at(-1);
    if (last && last[1] === one - 1) last[1] = one;
    else runs.push([one, one]);
  }
  return runs.map(([from, to]) => (from === to ? from : to === from + 1 ? `${from}, ${to}` : `${from}–${to}`)).join(", ");
}
