// How numbers are written.

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** number writes v with about digits significant digits; "–" where there is none. */
export function number(v, digits = 4) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  const size = Math.abs(v);
  if (size === 0) return "0";
  if (size >= 1e15 || size < 1e-3) return v.toExponential(Math.max(0, digits - 2)).replace("e+", "e");
  if (size >= 10 ** (digits - 1)) return grouped.format(v);
  return v.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
}

/** count writes a whole number. */
export function count(v) {
  return Number.isFinite(v) ? grouped.format(v) : "–";
}

/** short writes v for an axis: 1,200, 12k, 3.5M, 2e-4. */
export function short(v) {
  const size = Math.abs(v);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit && (unit > 1e3 || size >= 1e4)) return trim(v / unit) + letter;
  }
  if (size >= 1e3 && Number.isInteger(v)) return grouped.format(v);
  if (size !== 0 && size < 1e-3) return exponential(v);
  return trim(v);
}

/** shorts writes the values of one axis, all with an exponent where one has it. */
export function shorts(values) {
  const small = values.some((v) => v !== 0 && Math.abs(v) < 1e-3) && values.every((v) => Math.abs(v) < 0.1);
  return values.map((v) => (small && v !== 0 ? exponential(v) : short(v)));
}

function exponential(v) {
  return v.toExponential(1).replace(".0e", "e").replace("e+", "e");
}

function trim(v) {
  return String(Number(v.toPrecision(4)));
}

/** percent writes a share. */
export function percent(v) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  return (100 * v).toFixed(v < 0.0995 ? 1 : 0) + " %";
}

/** bytes writes an amount of memory in binary units. */
export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  while (v >= 1024 && u < units.length - 1) {
    v /= 1024;
    u++;
  }
  return (u === 0 || v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v.toFixed(2)) + " " + units[u];
}

/** duration writes seconds as 1h02m, 3m20s, 12s. */
export function duration(s) {
  if (!Number.isFinite(s)) return "–";
  s = Math.round(s);
  const two = (n) => String(n).padStart(2, "0");
  if (s >= 86400) return `${Math.floor(s / 86400)}d${two(Math.floor((s % 86400) / 3600))}h`;
  if (s >= 3600) return `${Math.floor(s / 3600)}h${two(Math.floor((s % 3600) / 60))}m`;
  if (s >= 60) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  return `${s}s`;
}

/** time writes a span of seconds with the unit that fits. */
export function time(s) {
  if (s === 0) return "0 s";
  for (const [unit, name] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) {
    if (Math.abs(s) >= unit || unit === 1e-6) return number(s / unit, 3) + " " + name;
  }
  return "";
}
