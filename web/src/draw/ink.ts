// SPDX-License-Identifier: MIT
// The ink that reads better on a background: both reach a contrast of 4.5 where they are chosen.
import * as d3 from "d3";

export function inkOn(background: string): string {
  const { r, g, b } = d3.rgb(background);
  const linear = (part: number) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  return luminance > 0.18 ? "#000" : "#fff";
}
