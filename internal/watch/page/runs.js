// The cards of runs, their samples and their configurations.

import { element, swatch } from "./dom.js";
import { count, duration, number, percent } from "./format.js";
import { settings, stallOf } from "./data.js";

/** drawRuns shows a card for each run. */
export function drawRuns(panel, runs, { colourOf, within, ended, focus, onShow }) {
  const several = runs.length > 1;
  panel.classList.toggle("several", several);
  while (panel.children.length > runs.length) panel.lastChild.remove();
  runs.forEach((run, i) => {
    let card = panel.children[i];
    if (!card) {
      card = newCard(run, several, onShow);
      panel.append(card);
    }
    card.classList.toggle("focus", several && run === focus);
    fill(card, run, { several, hue: colourOf(run), within, ended });
  });
}

function newCard(run, several, onShow) {
  const card = element("article", { className: "run" });
  const label = element("label", {}, swatch(""), element("span", { textContent: run.name }));
  if (several) {
    const box = element("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => onShow(run, box.checked));
    label.prepend(box);
  }
  card.append(element("div", { className: "head" }, label, element("span", { className: "badge" })),
    element("div", { className: "progress" }, element("div")), element("div", { className: "where" }), element("dl", { className: "figures" }));
  return card;
}

function fill(card, run, { several, hue, within, ended }) {
  const line = run.last;
  const [word, kind, age] = run.status(within, ended);
  const badge = card.querySelector(".badge");
  badge.textContent = age ? `no news for ${duration(age)}` : word;
  badge.className = `badge ${kind}`;
  card.querySelector(".swatch").style.background = hue;
  const bar = card.querySelector(".progress div");
  bar.style.width = line ? `${(100 * line.step) / Math.max(1, line.max_steps)}%` : "0";
  bar.style.background = hue;
  const going = line && !run.done && !(within && ended) && line.step < line.max_steps;
  const where = line
    ? [`step ${count(line.step)} of ${count(line.max_steps)} · epoch ${number(line.epoch, 3)} · ${count(line.tokens_total)} tokens`,
      going ? `${duration(line.eta_s)} left` : ""]
    : ["waiting for the first numbers"];
  card.querySelector(".where").replaceChildren(...where.map((text) => element("span", { textContent: text })));
  const list = figures(run, several).map(([name, value]) => element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value })));
  card.querySelector(".figures").replaceChildren(...list);
}

/** figures are the numbers of a card. */
function figures(run, several) {
  const line = run.last;
  if (!line) return [];
  const short = [["Loss", number(line.loss)], ["Held-out loss", number(run.lastEval?.eval_loss)], ["Tokens/s", number(line.tok_per_s)]];
  if (several) return short;
  return [...short, ["Stalled", percent(stallOf(line))], ["Gradient norm", number(line.grad_norm, 3)], ["Learning rate", number(line.lr, 3)],
    ["TFLOPS", number(line.tflops, 3)], ["MFU", percent(line.mfu)], ["Step", duration2(line.step_s)]];
}

function duration2(s) {
  return s >= 100 ? duration(s) : s >= 1 ? `${number(s, 3)} s` : `${number(1000 * s, 3)} ms`;
}

let older = false;

/** drawSamples shows what the model wrote, the newest first. */
export function drawSamples(panel, run) {
  const steps = [...new Set(run.samples.map((s) => s.step))].sort((a, b) => b - a);
  panel.hidden = steps.length === 0;
  panel.dataset.points = String(run.samples.length);
  if (panel.hidden) return;
  const shown = older ? steps : steps.slice(0, 3);
  const out = [element("h2", { textContent: "Samples" })];
  for (const step of shown) {
    const at = element("div", { className: "sample" }, element("h3", { textContent: `Step ${step}` }));
    for (const s of run.samples.filter((s) => s.step === step)) {
      at.append(element("p", {}, element("span", { className: "prompt", textContent: s.prompt ?? "" }), s.text ?? ""));
    }
    out.push(at);
  }
  if (shown.length < steps.length) {
    const more = element("button", { type: "button", textContent: `Show ${steps.length - shown.length} older steps` });
    more.addEventListener("click", () => {
      older = true;
      drawSamples(panel, run);
    });
    out.push(more);
  }
  panel.replaceChildren(...out);
}

/** drawConfig shows the configuration of a run, and in what several differ. */
export function drawConfig(panel, runs, run) {
  const open = panel.querySelector("details")?.open ?? false;
  panel.hidden = !runs.some((r) => r.config);
  const out = [];
  const differ = differences(runs);
  if (differ.length > 0) {
    const table = element("table", {});
    const head = table.createTHead().insertRow();
    for (const name of ["Key", ...runs.map((r) => r.name)]) head.append(element("th", { textContent: name }));
    for (const [key, values] of differ) {
      const row = table.insertRow();
      for (const text of [key, ...values]) row.insertCell().textContent = text;
    }
    out.push(element("h2", { textContent: "What the runs differ in" }), element("div", { className: "differ" }, table));
  }
  out.push(element("details", { open }, element("summary", { textContent: runs.length > 1 ? `Configuration of ${run.name}` : "Configuration" }),
    element("pre", { textContent: run.config })));
  panel.replaceChildren(...out);
}

function differences(runs) {
  if (runs.length < 2) return [];
  const all = runs.map((r) => settings(r.config));
  const keys = [...new Set(all.flatMap((m) => [...m.keys()]))];
  return keys.map((key) => [key, all.map((m) => m.get(key) ?? "–")]).filter(([, values]) => new Set(values).size > 1);
}
