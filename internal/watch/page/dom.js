// Elements, and colours of the style sheet.

/** element makes an element with properties and children; text is never read as HTML. */
export function element(tag, props = {}, ...children) {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children);
  return e;
}

/** swatch is a small square of a colour, or three dashes of it. */
export function swatch(colour, dashed = false) {
  const e = element("span", { className: dashed ? "swatch dashed" : "swatch" });
  e.style[dashed ? "color" : "background"] = colour;
  return e;
}

let style = null;

/** colour is the value of a custom property of the style sheet, in the scheme at hand. */
export function colour(name) {
  style ??= getComputedStyle(document.documentElement);
  return style.getPropertyValue("--" + name).trim();
}

/** canvasOf fits a canvas to the place it has, and returns what draws in it, in CSS pixels. */
export function canvasOf(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return { c, width, height };
}

export const font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
