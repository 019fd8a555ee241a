// Axes: where a value is drawn, and which values have a mark.

/** linear maps lo…hi to a…b. */
export function linear(lo, hi, a, b) {
  const k = hi > lo ? (b - a) / (hi - lo) : 0;
  const f = (v) => (hi > lo ? a + (v - lo) * k : (a + b) / 2);
  f.back = (p) => (k === 0 ? lo : lo + (p - a) / k);
  return f;
}

/** logarithmic maps lo…hi, both above 0, to a…b. */
export function logarithmic(lo, hi, a, b) {
  const inner = linear(Math.log(lo), Math.log(hi), a, b);
  const f = (v) => inner(Math.log(v));
  f.back = (p) => Math.exp(inner.back(p));
  return f;
}

/** ticks are round values from lo to hi, about count of them. */
export function ticks(lo, hi, count) {
  if (!(hi > lo)) return [lo];
  const rough = (hi - lo) / Math.max(1, count);
  const base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * base).find((s) => s >= rough);
  const out = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}

/** wholeTicks are ticks of a number that is counted. */
export function wholeTicks(lo, hi, count) {
  return [...new Set(ticks(lo, hi, count).map(Math.round))].filter((v) => v >= lo && v <= hi);
}

/** logTicks are round values from lo to hi for a logarithmic axis. */
export function logTicks(lo, hi, count) {
  const decades = Math.log10(hi / lo);
  if (decades < 0.7) return ticks(lo, hi, count).filter((v) => v > 0);
  const every = Math.max(1, Math.ceil(decades / count));
  const steps = decades < 1.5 ? [1, 2, 3, 5] : decades < 3 ? [1, 3] : [1];
  const out = [];
  for (let e = Math.floor(Math.log10(lo)); e <= Math.log10(hi); e += every) {
    for (const m of steps) if (m * 10 ** e >= lo * 0.999 && m * 10 ** e <= hi * 1.001) out.push(m * 10 ** e);
  }
  return out;
}

/**
 * range is what an axis shows of values: all of them, or, where a few are far off the
 * others, what the others span. above and below are the extremes that are left out.
 */
export function range(values, { log = false, zero = false } = {}) {
  const v = values.filter((x) => Number.isFinite(x) && (!log || x > 0)).sort((a, b) => a - b);
  if (v.length === 0) return null;
  let lo = v[0];
  let hi = v[v.length - 1];
  const out = {};
  if (!log && v.length >= 40) {
    const q = (p) => v[Math.round(p * (v.length - 1))];
    const span = q(0.97) - q(0.03) || Math.abs(q(0.5)) || 1;
    if (hi > q(0.97) + 2 * span) [out.above, hi] = [hi, q(0.97) + 0.5 * span];
    if (lo < q(0.03) - 2 * span) [out.below, lo] = [lo, q(0.03) - 0.5 * span];
  }
  if (zero && lo > 0) lo = 0;
  if (log) {
    const pad = hi > lo ? (hi / lo) ** 0.06 : 1.2;
    return { ...out, lo: lo / pad, hi: hi * pad };
  }
  const pad = hi > lo ? 0.06 * (hi - lo) : 0.1 * Math.abs(hi) || 1;
  return { ...out, lo: zero && lo === 0 ? 0 : lo - pad, hi: hi + pad };
}

/** nearest is the index of the entry of xs, which ascend, that is closest to x. */
export function nearest(xs, x) {
  if (xs.length === 0) return -1;
  let [a, b] = [0, xs.length - 1];
  while (b - a > 1) {
    const m = (a + b) >> 1;
    if (xs[m] > x) b = m;
    else a = m;
  }
  return Math.abs(xs[a] - x) <= Math.abs(xs[b] - x) ? a : b;
}
