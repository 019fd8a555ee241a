// The pipeline's timeline of a step: who held what when.

import { canvasOf, colour, element, font } from "./dom.js";
import { time } from "./format.js";
import { linear, ticks } from "./scale.js";
import { causeColour } from "./causes.js";

const axisHeight = 20;
// Work on a stream has no colour, so that the causes of stalls beside it are seen.
const kinds = { stream: "s5", actor: "s2", credit: "s4" };

/** Timeline draws {step, seconds, tracks: [{name, kind, spans: [{name, start, end, cause}]}]} into panel. */
export class Timeline {
  constructor(panel) {
    this.panel = panel;
    this.data = null;
    this.range = null;
    this.at = element("span", { className: "at" });
    this.canvas = element("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "Timeline of the last step");
    this.said = element("p", { className: "said" });
    panel.append(element("div", { className: "head" }, element("h2", { textContent: "The pipeline in its last step" }), this.at),
      this.said, element("div", { className: "scroll" }, this.canvas));
    this.listen();
  }

  /** show takes the timeline of a run, null where it has none. */
  show(data) {
    const tracks = data?.tracks;
    this.panel.hidden = !Array.isArray(tracks) || tracks.length === 0;
    if (this.data !== data) this.range = this.over = null;
    this.data = this.panel.hidden ? null : data;
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const { tracks, seconds, step } = this.data;
    const narrow = this.panel.clientWidth < 640;
    const row = narrow ? 38 : 24;
    this.left = narrow ? 4 : 132;
    this.canvas.style.height = `${axisHeight + tracks.length * row + 2}px`;
    const { c, width, height } = canvasOf(this.canvas);
    if (width === 0) return;
    const [t0, t1] = this.range ?? [0, seconds];
    this.x = linear(t0, t1, this.left, width - 6);
    this.rows = [];
    this.axis(c, t0, t1, height, width);
    let count = 0;
    tracks.forEach((track, i) => {
      const above = axisHeight + i * row;
      const top = above + (narrow ? 16 : 3);
      this.label(c, track.name, above, row, narrow);
      this.rows.push({ top, bottom: top + 18, track });
      c.save();
      c.beginPath();
      c.rect(this.left, top, width - 6 - this.left, 18);
      c.clip();
      c.fillStyle = colour("grid");
      c.fillRect(this.left, top, width, 18);
      for (const span of track.spans) {
        this.span(c, track, span, top);
        count++;
      }
      c.restore();
    });
    this.panel.dataset.points = String(count);
    this.at.textContent = `step ${step}, ${time(seconds)}`;
    this.mark(c);
    this.say();
  }

  axis(c, t0, t1, height, width) {
    c.font = font;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const t of ticks(t0, t1, Math.max(2, Math.floor((width - this.left) / 100)))) {
      const x = Math.round(this.x(t)) + 0.5;
      c.strokeStyle = colour("edge");
      c.beginPath();
      c.moveTo(x, axisHeight - 4);
      c.lineTo(x, height);
      c.stroke();
      c.fillStyle = colour("axis");
      const half = c.measureText(time(t)).width / 2;
      c.fillText(t === 0 ? "0" : time(t), Math.min(Math.max(x, half + 2), width - half - 2), 2);
    }
  }

  label(c, name, top, row, narrow) {
    c.font = font;
    c.fillStyle = colour("dim");
    c.textAlign = "left";
    c.textBaseline = narrow ? "top" : "middle";
    c.fillText(name, narrow ? 4 : 0, narrow ? top + 3 : top + row / 2, narrow ? 300 : 126);
  }

  /** span draws one span: a stall in its cause's colour, lower than work. */
  span(c, track, span, top) {
    const a = this.x(span.start);
    const w = Math.max(0.75, this.x(span.end) - a);
    if (a + w < this.left || a > this.canvas.clientWidth) return;
    c.fillStyle = span.cause ? causeColour(span.cause) : colour(kinds[track.kind] ?? "s5");
    c.globalAlpha = span.cause ? 1 : track.kind === "credit" ? 0.75 : 0.9;
    c.fillRect(a, top + (span.cause ? 4 : 0), w > 3 ? w - 0.5 : w, span.cause ? 10 : 18);
    c.globalAlpha = 1;
    const from = Math.max(a, this.left);
    const room = a + w - from - 8;
    if (room < 26) return;
    c.font = font;
    if (c.measureText(span.name).width > room) return;
    c.fillStyle = colour(track.kind === "credit" ? "ink" : "panel");
    c.textAlign = "left";
    c.textBaseline = "middle";
    c.fillText(span.name, from + 4, top + 9.5);
  }

  mark(c) {
    if (this.over) {
      const { top, span } = this.over;
      c.strokeStyle = colour("text");
      c.lineWidth = 1.5;
      c.strokeRect(this.x(span.start), top, Math.max(1, this.x(span.end) - this.x(span.start)), 18);
      c.lineWidth = 1;
    }
    if (this.drag) {
      c.fillStyle = colour("mark");
      c.globalAlpha = 0.15;
      c.fillRect(Math.min(...this.drag), 0, Math.abs(this.drag[1] - this.drag[0]), this.canvas.clientHeight);
      c.globalAlpha = 1;
    }
  }

  say() {
    if (!this.over) {
      this.said.textContent = this.range ? "Double-click to see the whole step again." : "Point at a piece to see what it is; drag to look closer.";
      return;
    }
    const { track, span } = this.over;
    const what = span.cause ? `${span.name} (${span.cause.replaceAll("_", " ")})` : span.name;
    this.said.textContent = `${track.name} · ${what} · ${time(span.start)} to ${time(span.end)} · ${time(span.end - span.start)}`;
  }

  /** find is the span at a place, or one a few pixels beside it. */
  find(px, py) {
    const at = this.rows?.find((r) => py >= r.top - 16 && py < r.bottom + 3 && py >= r.top - 4);
    if (!at) return null;
    const distance = (s) => Math.max(0, this.x(s.start) - px, px - this.x(s.end));
    let best = null;
    for (const span of at.track.spans) if (distance(span) < 4 && (!best || distance(span) < distance(best))) best = span;
    return best && { track: at.track, top: at.top, span: best };
  }

  listen() {
    const canvas = this.canvas;
    const place = (e) => {
      const box = canvas.getBoundingClientRect();
      return [e.clientX - box.left, e.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", (e) => {
      const [x, y] = place(e);
      if (e.pointerType === "mouse" && e.button === 0) {
        this.drag = [x, x];
        canvas.setPointerCapture(e.pointerId);
      }
      this.over = this.find(x, y);
      this.draw();
    });
    canvas.addEventListener("pointermove", (e) => {
      const [x, y] = place(e);
      if (this.drag) this.drag[1] = x;
      this.over = this.find(x, y);
      this.draw();
    });
    canvas.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (drag && Math.abs(drag[1] - drag[0]) > 6) {
        const [a, b] = drag.map((p) => this.x.back(p)).sort((p, q) => p - q);
        this.range = [Math.max(0, a), Math.min(this.data.seconds, b)];
      }
      this.draw();
    });
    canvas.addEventListener("pointercancel", () => (this.drag = null));
    canvas.addEventListener("pointerleave", (e) => {
      if (e.pointerType === "mouse" && !this.drag) this.over = null;
      this.draw();
    });
    canvas.addEventListener("dblclick", () => {
      this.range = null;
      this.draw();
    });
  }
}
