// Curves and stacked areas over steps, on a canvas, with axes, values under the pointer
// and a range to look closer at.

import { canvasOf, colour, element, font, swatch } from "./dom.js";
import { short, shorts } from "./format.js";
import { linear, logarithmic, logTicks, nearest, range, ticks, wholeTicks } from "./scale.js";

/**
 * Chart draws into panel what series() returns: a list of {name, colour, xs, ys} whose xs
 * ascend, with raw (values behind a smoothed curve), dots and dash as they are wanted.
 * view is what all charts share: {range: [lo, hi] or null, cursor: x or null, changed()}.
 */
export class Chart {
  constructor(panel, view, { title, series, format, log = () => false, zero = false, share = false, stacked = false, empty = "No numbers yet." }) {
    Object.assign(this, { panel, view, series, format, log, zero, share, stacked });
    this.at = element("span", { className: "at" });
    this.legend = element("ul", { className: "legend" });
    this.canvas = element("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", title);
    this.empty = element("p", { className: "empty", textContent: empty });
    panel.append(element("div", { className: "head" }, element("h2", { textContent: title }), this.at), this.legend, element("div", { className: "plot" }, this.canvas), this.empty);
    this.listen();
  }

  /** draw shows the data at hand. xs says what the axis across counts. */
  draw(bounds, unit) {
    const all = this.series();
    const some = all.some((s) => s.ys.some((y) => y !== null));
    this.canvas.parentNode.hidden = this.legend.hidden = this.at.hidden = !some;
    this.empty.hidden = some;
    this.panel.dataset.points = String(all.reduce((n, s) => n + s.ys.filter((y) => y !== null).length, 0));
    if (!some || bounds === null) return;
    const { c, width, height } = canvasOf(this.canvas);
    if (width === 0) return;
    const [x0, x1] = this.view.range ?? bounds;
    const shown = all.map((s) => part(s, x0, x1));
    const stack = this.stacked ? sums(shown) : null;
    const reach = this.reach(shown, stack);
    this.frame(c, width, height, [x0, x1], reach, unit);
    c.save();
    c.beginPath();
    c.rect(this.box.left, this.box.top - 1, this.box.width, this.box.height + 2);
    c.clip();
    if (stack) this.areas(c, shown, stack);
    else for (const s of shown) this.curve(c, s);
    c.restore();
    if (reach) this.beyond(c, reach);
    this.cursor(c, all, shown, stack, unit);
  }

  /** reach is the range of the values that are shown. */
  reach(shown, stack) {
    const log = this.log();
    if (stack) {
      const top = Math.max(...stack.at(-1), 0);
      return { lo: 0, hi: top > 0 ? top * 1.08 : 1 };
    }
    const values = [];
    for (const s of shown) {
      for (const ys of [s.ys, s.raw ?? []]) for (const y of ys) if (y !== null) values.push(y);
    }
    return range(values, { log, zero: this.zero }) ?? { lo: log ? 1 : 0, hi: log ? 10 : 1 };
  }

  /** frame draws the axes, and sets this.box, this.x and this.y. */
  frame(c, width, height, [x0, x1], { lo, hi }, unit) {
    c.font = font;
    const log = this.log();
    const marks = (log ? logTicks : ticks)(lo, hi, Math.max(2, Math.floor(height / 48))).filter((v) => v >= lo && v <= hi);
    const written = this.share ? marks.map((v) => `${short(100 * v)} %`) : shorts(marks);
    const texts = new Map(marks.map((v, i) => [v, written[i]]));
    const text = (v) => texts.get(v);
    const left = Math.ceil(Math.max(24, ...marks.map((v) => c.measureText(text(v)).width))) + 10;
    const box = (this.box = { left, top: 8, width: width - left - 10, height: height - 8 - 34 });
    this.x = linear(x0, x1, left, left + box.width);
    this.y = (log ? logarithmic : linear)(lo, hi, box.top + box.height, box.top);
    c.lineWidth = 1;
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const v of marks) {
      const y = Math.round(this.y(v)) + 0.5;
      c.strokeStyle = colour("grid");
      c.beginPath();
      c.moveTo(left, y);
      c.lineTo(left + box.width, y);
      c.stroke();
      c.fillStyle = colour("axis");
      c.fillText(text(v), left - 7, y);
    }
    c.textBaseline = "top";
    c.textAlign = "center";
    for (const v of wholeTicks(x0, x1, Math.max(2, Math.floor(box.width / 90)))) {
      const x = this.x(v);
      const half = c.measureText(short(v)).width / 2;
      c.fillText(short(v), Math.min(Math.max(x, left + half - 4), left + box.width - half + 8), box.top + box.height + 6);
    }
    c.fillText(unit, left + box.width / 2, box.top + box.height + 20);
    c.strokeStyle = colour("edge");
    c.strokeRect(left + 0.5, box.top + 0.5, box.width - 1, box.height - 1);
  }

  curve(c, s) {
    c.lineJoin = "round";
    if (s.raw) {
      c.globalAlpha = 0.28;
      this.path(c, s.xs, s.raw, s.colour, 1);
      c.globalAlpha = 1;
    }
    c.setLineDash(s.dash ?? []);
    this.path(c, s.xs, s.ys, s.colour, 1.8);
    c.setLineDash([]);
    const few = s.ys.filter((y) => y !== null).length;
    if (few > 60 || (!s.dots && few > 1)) return;
    c.fillStyle = s.colour;
    s.ys.forEach((y, i) => {
      if (y !== null) this.dot(c, this.x(s.xs[i]), this.y(y), 2.8);
    });
  }

  dot(c, x, y, r) {
    c.beginPath();
    c.arc(x, y, r, 0, 7);
    c.fill();
  }

  /** path draws a line. Of points that share a column of pixels it draws the extremes. */
  path(c, xs, ys, stroke, lineWidth) {
    Object.assign(c, { strokeStyle: stroke, lineWidth });
    c.beginPath();
    const dense = xs.length > 3 * this.box.width;
    let pen = false;
    let column = null;
    const put = (x, y) => {
      if (pen) c.lineTo(x, y);
      else c.moveTo(x, y);
      pen = true;
    };
    const flush = () => {
      if (!column) return;
      put(column.x, column.first);
      if (column.lo !== column.hi) for (const y of [column.lo, column.hi, column.last]) put(column.x, y);
      column = null;
    };
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || (this.log() && ys[i] <= 0)) {
        flush();
        pen = false;
        continue;
      }
      const y = this.y(ys[i]);
      const x = dense ? Math.round(this.x(xs[i])) : this.x(xs[i]);
      if (!dense) put(x, y);
      else if (column?.x === x) Object.assign(column, { lo: Math.min(column.lo, y), hi: Math.max(column.hi, y), last: y });
      else {
        flush();
        column = { x, first: y, last: y, lo: y, hi: y };
      }
    }
    flush();
    c.stroke();
  }

  areas(c, shown, stack) {
    const xs = shown[0].xs.map(this.x);
    let below = xs.map(() => this.y(0));
    stack.forEach((tops, k) => {
      const above = tops.map((v) => this.y(v));
      c.beginPath();
      xs.forEach((x, i) => c.lineTo(x, above[i]));
      for (let i = xs.length - 1; i >= 0; i--) c.lineTo(xs[i], below[i]);
      c.closePath();
      c.fillStyle = shown[k].colour;
      c.globalAlpha = 0.85;
      c.fill();
      c.globalAlpha = 1;
      below = above;
    });
  }

  /** beyond says which values are outside of what is shown. */
  beyond(c, { above, below }) {
    const { left, top, width, height } = this.box;
    c.font = font;
    c.fillStyle = colour("dim");
    c.textAlign = "right";
    if (above !== undefined) c.fillText(`↑ up to ${this.format(above)}`, left + width - 6, top + 5);
    if (below !== undefined) c.fillText(`↓ down to ${this.format(below)}`, left + width - 6, top + height - 17);
  }

  /** cursor marks the values at view.cursor, and writes them, or the last ones, into the legend. */
  cursor(c, all, shown, stack, unit) {
    const { left, top, width, height } = this.box;
    const wanted = this.view.cursor;
    const items = [];
    let where = null;
    shown.forEach((s, k) => {
      const whole = all[k];
      const i = wanted === null ? lastValue(whole.ys) : nearest(s.xs, wanted);
      const from = wanted === null ? whole : s;
      const y = i < 0 ? null : from.ys[i];
      items.push([s, i < 0 ? null : (from.raw ?? from.ys)[i], s.note ? s.note(wanted === null ? i : i + s.from) : ""]);
      if (wanted === null || i < 0) return;
      if (where === null || Math.abs(s.xs[i] - wanted) < Math.abs(where - wanted)) where = s.xs[i];
      if (y !== null && !stack) {
        c.fillStyle = s.colour;
        this.dot(c, this.x(s.xs[i]), Math.min(top + height, Math.max(top, this.y(y))), 3.5);
      }
    });
    if (where !== null) {
      const x = Math.round(this.x(where)) + 0.5;
      if (x >= left && x <= left + width) {
        c.strokeStyle = colour("axis");
        c.setLineDash([3, 3]);
        c.beginPath();
        c.moveTo(x, top);
        c.lineTo(x, top + height);
        c.stroke();
        c.setLineDash([]);
      }
    }
    if (this.drag) {
      const [a, b] = this.drag.map((p) => Math.min(left + width, Math.max(left, p)));
      c.fillStyle = colour("mark");
      c.globalAlpha = 0.15;
      c.fillRect(Math.min(a, b), top, Math.abs(b - a), height);
      c.globalAlpha = 1;
    }
    this.at.textContent = where === null ? "" : `${unit} ${short(where)}`;
    this.say(items);
  }

  /** say writes the legend. */
  say(items) {
    const rows = items.map(([s, y, note]) => {
      const b = element("b", { textContent: this.format(y) + (note ? ` · ${note}` : "") });
      return s.name ? element("li", {}, swatch(s.colour, s.dash?.length > 0), s.name + " ", b) : element("li", {}, b);
    });
    this.legend.replaceChildren(...rows);
  }

  listen() {
    const canvas = this.canvas;
    const place = (e) => e.clientX - canvas.getBoundingClientRect().left;
    const look = (p) => {
      this.view.cursor = this.x?.back(p) ?? null;
      this.view.changed();
    };
    canvas.addEventListener("pointerdown", (e) => {
      if (e.pointerType === "mouse" && e.button === 0) {
        this.drag = [place(e), place(e)];
        canvas.setPointerCapture(e.pointerId);
      }
      look(place(e));
    });
    canvas.addEventListener("pointermove", (e) => {
      if (this.drag) this.drag[1] = place(e);
      look(place(e));
    });
    canvas.addEventListener("pointerup", () => this.zoom());
    canvas.addEventListener("pointercancel", () => (this.drag = null));
    canvas.addEventListener("pointerleave", (e) => {
      if (e.pointerType === "mouse") this.leave();
    });
    canvas.addEventListener("blur", () => this.leave());
    canvas.addEventListener("dblclick", () => this.view.zoom(null));
    canvas.addEventListener("keydown", (e) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      const xs = this.series().find((s) => s.xs.length > 0)?.xs;
      if (e.key === "Escape") this.view.zoom(null);
      if (!way || !xs) return;
      e.preventDefault();
      const at = this.view.cursor === null ? xs.length : nearest(xs, this.view.cursor);
      this.view.cursor = xs[Math.min(xs.length - 1, Math.max(0, at + way))];
      this.view.changed();
    });
  }

  leave() {
    this.view.cursor = null;
    this.view.changed();
  }

  /** zoom ends a drag: what it went over is shown closer, unless it is next to nothing. */
  zoom() {
    const drag = this.drag;
    this.drag = null;
    if (!drag || Math.abs(drag[1] - drag[0]) < 6) return;
    const ends = drag.map((p) => this.x.back(p)).sort((a, b) => a - b);
    this.view.zoom(ends);
  }
}

/** part is s between x0 and x1, with one point on either side; from is where it begins. */
function part(s, x0, x1) {
  let [a, b] = [0, s.xs.length];
  while (a + 1 < b && s.xs[a + 1] < x0) a++;
  while (b - 1 > a && s.xs[b - 2] > x1) b--;
  return { ...s, from: a, xs: s.xs.slice(a, b), ys: s.ys.slice(a, b), raw: s.raw?.slice(a, b) };
}

/** sums are the values of the first series, of the first two, of the first three … */
function sums(shown) {
  let below = shown[0]?.ys.map(() => 0) ?? [];
  return shown.map((s) => (below = below.map((v, i) => v + (s.ys[i] ?? 0))));
}

function lastValue(ys) {
  let i = ys.length - 1;
  while (i >= 0 && ys[i] === null) i--;
  return i;
}
