// The page: what the server sends becomes runs, and runs become charts.

import { Chart } from "./chart.js";
import { causeColour } from "./causes.js";
import { Run } from "./data.js";
import { colour } from "./dom.js";
import { number, percent, time } from "./format.js";
import { drawMemory } from "./memory.js";
import { drawConfig, drawRuns, drawSamples } from "./runs.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const page = { runs: [], within: false, ended: false, focus: null, axis: "step", smoothing: 0.6, log: false, share: 1 };
const hueOf = (run) => colour("c" + (run.index % 8));
const dashOf = (run) => [[], [7, 3], [2, 3]][Math.floor(run.index / 8) % 3];
const shown = () => page.runs.filter((r) => r.shown);
const label = (run, what) => (page.runs.length > 1 ? (what ? `${run.name}, ${what}` : run.name) : what);

const view = {
  range: null, cursor: null,
  changed: () => plan("charts"),
  zoom(ends) {
    view.range = ends;
    page.share = ends ? null : 1;
    plan("charts");
  },
};

/** curve is a column of every run that is shown. */
function curve(column, { what = "", smooth = false } = {}) {
  return shown().map((run) => {
    const s = run.steps;
    const smoothed = smooth && page.smoothing > 0;
    return { name: label(run, what), colour: hueOf(run), dash: dashOf(run), xs: s[page.axis],
      ys: smoothed ? run.smoothed(column, page.smoothing) : s[column], raw: smoothed ? s[column] : null };
  });
}

/** held is the held-out loss of the runs that are shown. */
function held() {
  return shown().filter((run) => run.evals.step.length > 0).map((run) => ({ name: label(run, "held-out"),
    colour: page.runs.length > 1 ? hueOf(run) : colour("c1"), dots: true, dash: [5, 4], xs: run.evals[page.axis], ys: run.evals.loss }));
}

/** causes are the stalls of the run whose details are shown. */
function causes() {
  const run = page.focus;
  if (!run) return [];
  return run.causes.filter((cause) => run.steps.stalls[cause].some((v) => v > 0)).map((cause) => ({ name: cause.replaceAll("_", " "), colour: causeColour(cause),
    xs: run.steps[page.axis], ys: run.steps.stalls[cause],
    note: (i) => (i >= 0 && run.steps.compute_s[i] > 0 ? time(run.steps.stalls[cause][i] * run.steps.compute_s[i]) : "") }));
}

const charts = [
  new Chart($("loss"), view, { title: "Loss, nats per token", series: () => [...curve("loss", { what: "training", smooth: true }), ...held()], format: number, log: () => page.log }),
  new Chart($("grad_norm"), view, { title: "Gradient norm", series: () => curve("grad_norm", { smooth: true }), format: number }),
  new Chart($("lr"), view, { title: "Learning rate", series: () => curve("lr"), format: (v) => number(v, 3), zero: true }),
  new Chart($("tok_per_s"), view, { title: "Throughput, tokens per second", series: () => curve("tok_per_s", { smooth: true }), format: number, zero: true }),
  new Chart($("stall"), view, { title: "Share of time that the device waited", series: () => curve("stall", { smooth: true }), format: percent, zero: true, share: true }),
  new Chart($("causes"), view, { title: "What the device waited for", series: causes, format: percent, share: true, stacked: true, empty: "Nothing was waited for." }),
];
const timeline = new Timeline($("timeline"));

/** bounds are the ends of the axis across. */
function bounds() {
  let [lo, hi] = [Infinity, -Infinity];
  for (const run of shown()) {
    for (const xs of [run.steps[page.axis], run.evals[page.axis]]) {
      for (const x of xs.length ? [xs[0], xs[xs.length - 1]] : []) {
        if (x === null) continue;
        lo = Math.min(lo, x);
        hi = Math.max(hi, x);
      }
    }
  }
  if (lo > hi) return null;
  return page.share === null || page.share === 1 ? [lo, hi] : [hi - page.share * (hi - lo), hi];
}

function drawCharts() {
  const at = bounds();
  for (const chart of charts) chart.draw(at, page.axis === "step" ? "step" : "tokens");
  $("unzoom").hidden = view.range === null;
  for (const b of document.querySelectorAll("[data-range]")) b.setAttribute("aria-pressed", String(Number(b.dataset.range) === page.share));
}

function drawRest() {
  const { runs, within, ended, focus } = page;
  const names = runs.map((r) => r.name).join(", ");
  $("title").textContent = names;
  const first = runs.length === 1 ? runs[0].last : null;
  document.title = first ? `${first.step}/${first.max_steps} ${names}` : `${names} · mt`;
  $("toolbar").hidden = !runs.some((r) => r.last || r.lastEval);
  drawRuns($("runs"), runs, { colourOf: hueOf, within, ended, focus, onShow: (run, on) => {
    run.shown = on;
    plan("charts");
  } });
  if (!focus) return;
  drawMemory($("memory"), focus.last);
  timeline.show(focus.timeline);
  drawSamples($("samples"), focus);
  drawConfig($("config"), runs, focus);
}

/** plan draws at the next frame: the curves, or everything. */
const due = new Set();
function plan(what) {
  if (due.size === 0) requestAnimationFrame(draw);
  due.add(what);
}

function draw() {
  const all = due.has("all");
  due.clear();
  if (all) drawRest();
  drawCharts();
  document.documentElement.dataset.ready = "yes";
}

function link(text, kind) {
  $("link").textContent = text;
  $("link").className = `badge ${kind}`;
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = text === "";
}

const source = new EventSource("events");
const on = (event, f) => source.addEventListener(event, (e) => {
  const data = JSON.parse(e.data);
  f(data, page.runs[data.run]);
  plan("all");
});
on("hello", ({ runs, within }) => {
  const before = page.focus?.index ?? 0;
  const was = page.runs;
  page.runs = runs.map((name, i) => Object.assign(new Run(i, name), { shown: was[i]?.shown ?? true }));
  Object.assign(page, { within, ended: false, focus: page.runs[before] ?? page.runs[0] });
  $("choice").hidden = runs.length < 2;
  $("focus").replaceChildren(...runs.map((name, i) => new Option(name, i, false, i === page.focus.index)));
  link("connected", "good");
  notice("");
});
on("metrics", ({ again, lines }, run) => {
  if (again) run.clear();
  run.add(lines ?? []);
});
on("samples", ({ again, lines }, run) => {
  if (again) run.samples = [];
  run.samples.push(...(lines ?? []).filter((s) => Number.isFinite(s?.step)));
});
on("config", ({ text }, run) => (run.config = text));
on("timeline", (data, run) => (run.timeline = data.timeline));
on("state", ({ done, age_s }, run) => {
  run.done = done;
  run.changed = Date.now() - 1000 * age_s;
});
on("end", () => {
  page.ended = true;
  source.close();
  link("closed", "");
  notice(page.within ? "The run has ended, and its dashboard with it. mt watch with its output_dir shows it again." : "mt watch was stopped.");
});
source.addEventListener("error", () => {
  if (page.ended) return;
  link("connection lost", "bad");
  notice(source.readyState === EventSource.CLOSED
    ? "The server refuses this page. A run or mt watch that was started anew has another address: open the one that it printed."
    : "Nobody answers. The page goes on by itself when the server is there again.");
});

for (const b of document.querySelectorAll("[data-range]")) {
  b.addEventListener("click", () => {
    view.range = null;
    page.share = Number(b.dataset.range);
    plan("charts");
  });
}
$("axis").addEventListener("change", (e) => {
  page.axis = e.target.value;
  view.range = null;
  plan("charts");
});
$("smoothing").addEventListener("input", (e) => {
  page.smoothing = Number(e.target.value);
  $("smoothness").textContent = page.smoothing.toFixed(2);
  plan("charts");
});
$("log").addEventListener("change", (e) => {
  page.log = e.target.checked;
  plan("charts");
});
$("unzoom").addEventListener("click", () => view.zoom(null));
$("focus").addEventListener("change", (e) => {
  page.focus = page.runs[Number(e.target.value)];
  plan("all");
});
addEventListener("resize", () => plan("all"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plan("all"));
setInterval(() => plan("all"), 30000); // how long ago something was
