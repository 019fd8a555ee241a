// Memory by purpose, as bars beside what limits it.

import { colour, element, swatch } from "./dom.js";
import { bytes, percent } from "./format.js";

// The colour of a purpose is the same in every run, and that of what belongs together on
// both sides.
const hues = {
  "weights": "s1", "weight slots": "s1", "gradient slabs": "s3", "gradient buffers": "s3", "moments": "s0", "saved for backward": "s0",
  "activations": "s2", "spilled activations": "s2", "host staging": "s6", "workspace": "s6", "lo planes": "s4", "batch": "s4", "tables": "s7", "kv cache": "c5", "context": "s5",
};
const hue = (purpose) => colour(hues[purpose] ?? "s5");

/** drawMemory shows the memory of a line of metrics.jsonl in panel. */
export function drawMemory(panel, line) {
  const head = element("div", { className: "head" }, element("h2", { textContent: "Memory by purpose" }),
    element("span", { className: "at", textContent: line ? `step ${line.step}` : "" }));
  const m = line?.memory;
  panel.classList.add("memory");
  if (!m) {
    panel.replaceChildren(head, element("p", { className: "empty", textContent: line ? "The run was made before mt wrote this down." : "No numbers yet." }));
    return;
  }
  panel.dataset.points = String(Object.keys(m.device).length + Object.keys(m.host).length);
  panel.replaceChildren(head, ...side("Device", parts(m.device), m.device_capacity ? rest(m.device_capacity, m.device) : [], m.device_limit, m.device_capacity),
    ...side("Host", parts(m.host), hostRest(m), m.host_limit, m.host_capacity));
}

function parts(held) {
  return Object.entries(held).sort((a, b) => b[1] - a[1]).map(([name, n]) => ({ name, n, fill: hue(name) }));
}

const total = (held) => Object.values(held).reduce((a, b) => a + b, 0);

function rest(capacity, held) {
  return [{ name: "the rest of the card", n: Math.max(0, capacity - total(held)), fill: colour("free"), quiet: true }];
}

/** hostRest is what of the machine's memory the run does not hold by purpose. */
function hostRest(m) {
  if (!m.host_capacity) return [];
  const onHost = total(m.host) + (m.device_capacity ? 0 : total(m.device)); // a CPU's device memory is the host's
  const used = m.host_capacity - m.host_available;
  const program = Math.max(0, m.host_resident - onHost);
  const cached = Math.min(m.host_cached, m.host_available);
  return [
    ...(m.device_capacity ? [] : [{ name: "the device, which is the CPU", n: total(m.device), fill: colour("s2"), quiet: true }]),
    { name: "the rest of the program", n: program, fill: colour("s5"), quiet: true },
    { name: "other programs", n: Math.max(0, used - onHost - program), fill: colour("axis"), quiet: true },
    { name: "cached files", n: cached, fill: colour("edge"), quiet: true },
    { name: "free", n: Math.max(0, m.host_available - cached), fill: colour("free"), quiet: true },
  ].filter((p) => p.n > 0);
}

function side(title, held, others, limit, capacity) {
  const used = held.reduce((n, p) => n + p.n, 0);
  const all = [...held, ...others];
  const scale = Math.max(capacity ?? 0, limit ?? 0, all.reduce((n, p) => n + p.n, 0)) || 1;
  const of = [`${bytes(used)} used`, limit ? `${bytes(limit)} allowed` : "", capacity ? `${bytes(capacity)} in all` : ""].filter(Boolean);
  const bar = element("div", { className: "bar" });
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", `${title}: ${of.join(", ")}`);
  for (const p of all) {
    const piece = element("i", { className: p.n > 0.01 * scale ? "wide" : "", title: `${p.name}: ${bytes(p.n)}` });
    piece.style.background = p.fill;
    piece.style.width = `${(100 * p.n) / scale}%`;
    bar.append(piece);
  }
  if (limit && limit < scale) {
    const mark = element("i", { className: "limit", title: `allowed: ${bytes(limit)}` });
    mark.style.left = `${(100 * limit) / scale}%`;
    bar.append(mark);
  }
  const table = element("table", { className: "parts" });
  for (const p of all) {
    const row = table.insertRow();
    row.className = p.quiet ? "rest" : "";
    row.insertCell().append(swatch(p.fill));
    row.insertCell().textContent = p.name;
    row.insertCell().textContent = bytes(p.n);
    row.insertCell().textContent = percent(p.n / scale);
  }
  return [element("h3", {}, title, element("span", { textContent: of.join(" · ") })), bar, table];
}
