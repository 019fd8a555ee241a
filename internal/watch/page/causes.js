// Why the compute stream stands still. A cause has the same colour everywhere.

import { colour } from "./dom.js";

const causes = ["weights", "update", "gradient_buffer", "activation", "data", "checkpoint", "routing", "passage", "disk"];

export function causeColour(cause) {
  const i = causes.indexOf(cause);
  return colour("s" + (i < 0 ? 7 : [0, 1, 3, 2, 4, 6, 7, 5, 6][i]));
}
