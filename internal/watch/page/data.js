// Runs: the numbers of metrics.jsonl as columns, and what is derived from them.

/** Run holds what is known of one run. */
export class Run {
  constructor(index, name) {
    Object.assign(this, { index, name, shown: true, config: "", timeline: null, samples: [], done: false, changed: null });
    this.clear();
  }

  /** clear forgets all lines. */
  clear() {
    this.last = null; // the last line of a step
    this.lastEval = null;
    this.causes = [];
    this.steps = { step: [], tokens: [], loss: [], grad_norm: [], lr: [], tok_per_s: [], stall: [], compute_s: [], stalls: {} };
    this.evals = { step: [], tokens: [], loss: [] };
    this.smooth = null;
  }

  /** add takes lines of metrics.jsonl. */
  add(lines) {
    for (const line of lines) {
      if (typeof line !== "object" || line === null || !Number.isFinite(line.step)) continue;
      if ("eval_loss" in line) {
        this.lastEval = line;
        push(this.evals, { step: line.step, tokens: this.last?.tokens_total ?? 0, loss: line.eval_loss });
      } else {
        this.addStep(line);
      }
    }
  }

  addStep(line) {
    const s = this.steps;
    this.last = line;
    const stalls = line.stall_s ?? {};
    for (const cause of Object.keys(stalls)) {
      if (!(cause in s.stalls)) {
        s.stalls[cause] = new Array(s.step.length).fill(0);
        this.causes = Object.keys(s.stalls).sort();
      }
    }
    for (const cause of this.causes) s.stalls[cause].push(line.compute_s > 0 ? (stalls[cause] ?? 0) / line.compute_s : 0);
    push(s, { step: line.step, tokens: line.tokens_total, loss: line.loss, grad_norm: line.grad_norm, lr: line.lr,
      tok_per_s: line.tok_per_s, stall: stallOf(line), compute_s: line.compute_s });
  }

  /** smoothed is a column with an exponential moving average that begins without a bias. */
  smoothed(column, weight) {
    const ys = this.steps[column];
    this.smooth ??= {};
    const known = this.smooth[column];
    if (known && known.weight === weight && known.ys.length <= ys.length) return this.extend(known, ys, weight);
    return this.extend((this.smooth[column] = { weight, ys: [], sum: 0, share: 0 }), ys, weight);
  }

  extend(state, ys, weight) {
    for (let i = state.ys.length; i < ys.length; i++) {
      if (Number.isFinite(ys[i]) && ys[i] !== null) {
        state.sum = weight * state.sum + (1 - weight) * ys[i];
        state.share = weight * state.share + (1 - weight);
        state.ys.push(state.sum / state.share);
      } else {
        state.ys.push(null);
      }
    }
    return state.ys;
  }

  /** status is a word and how it is to be seen. */
  status(within, ended) {
    if (this.done) return ["done", "good"];
    if (within) return ended ? ["ended", "warn"] : ["running", "good"];
    if (!this.last) return ["no numbers yet", ""];
    const age = (Date.now() - this.changed) / 1000;
    const due = (this.last.step_s ?? 0) * (this.last.window_steps ?? 1);
    return age < Math.max(60, 5 * due) ? ["running", "good"] : ["no news for " + age, "warn", age];
  }
}

/** stallOf is the share of compute_s that the stream stood still in a line. */
export function stallOf(line) {
  if (!(line.compute_s > 0)) return null;
  return Object.values(line.stall_s ?? {}).reduce((a, b) => a + b, 0) / line.compute_s;
}

function push(columns, row) {
  for (const [name, v] of Object.entries(row)) columns[name].push(v ?? null);
}

/** settings reads a config.yaml as keys and the text of their values. */
export function settings(text) {
  const out = new Map();
  let above = "";
  for (const line of text.split("\n")) {
    const found = /^(\s*)([A-Za-z_][\w.]*):\s*(.*)$/.exec(line);
    if (!found) continue;
    const [, indent, key, value] = found;
    if (indent === "") above = value === "" ? key + "." : "";
    if (value !== "") out.set(indent === "" ? key : above + key, value);
  }
  return out;
}
