// How the weights of heads relate: results of `clearhead scatter --json`.
import * as d3 from "d3";
import { el, hideTip, showTip } from "../dom";
import { inkOn } from "../draw/ink";
import type { View } from "../page";
import { showResults } from "./circuit";

interface Cell {
  x: string;
  y: string;
  pearson: number | null;
  spearman: number | null;
}

interface Section {
  label: string;
  pairs: number;
  heads: string[];
  largest?: number[];
  histograms?: number[][];
  cells?: Cell[];
  r?: (number | null)[][];
}

function color(r: number | null): string {
  if (r === null) return "#eaeef2";
  return d3.interpolateRgb("#ffffff", r < 0 ? "#b34a00" : "#08306b")(Math.min(1, Math.abs(r)));
}

function matrix(section: Section): HTMLElement {
  const n = section.heads.length, rows = section.r ?? [];
  const canvas = el("canvas", { width: n, height: n });
  const context = canvas.getContext("2d");
  rows.forEach((row, i) => row.forEach((r, j) => {
    if (context === null) return;
    context.fillStyle = color(r);
    context.fillRect(j, i, 1, 1);
  }));
  Object.assign(canvas.style, { width: "min(100%, 640px)", imageRendering: "pixelated", border: "1px solid #d0d7de" });
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left) / box.width) * n), i = Math.floor(((event.clientY - box.top) / box.height) * n);
    const r = rows[i]?.[j];
    showTip(`${section.heads[i]} and ${section.heads[j]}: ${r === null || r === undefined ? "undefined" : r.toFixed(3)}`, event);
  };
  canvas.onmouseleave = hideTip;
  return canvas;
}

function histogram(counts: number[], largest: number): SVGSVGElement | null {
  const width = 96, height = 56;
  const svg = d3.create("svg").attr("width", width).attr("height", height);
  const most = Math.log1p(Math.max(1, ...counts));
  counts.forEach((count, i) => {
    const h = (Math.log1p(count) / most) * (height - 14);
    svg.append("rect").attr("x", (i * width) / counts.length).attr("y", height - 12 - h).attr("width", width / counts.length - 0.5).attr("height", h).attr("fill", "#0b5cad");
  });
  svg.append("text").attr("x", 0).attr("y", height - 1).text(`0 … ${largest.toFixed(2)}`);
  return svg.node();
}

function table(section: Section): HTMLElement {
  const cell = (y: string, x: string) => section.cells?.find((candidate) => (candidate.x === x && candidate.y === y) || (candidate.x === y && candidate.y === x));
  const text = (r: number | null | undefined) => (r === null || r === undefined ? "–" : r.toFixed(3));
  return el("table", {}, [
    el("tr", {}, [el("th"), ...section.heads.map((head) => el("th", { textContent: head }))]),
    ...section.heads.map((y, i) => el("tr", {}, [el("th", { textContent: y }), ...section.heads.map((x, j) => {
      if (i === j) {
        const drawing = histogram(section.histograms?.[i] ?? [], section.largest?.[i] ?? 0);
        return el("td", {}, drawing === null ? [] : [drawing as unknown as HTMLElement]);
      }
      const values = cell(y, x);
      const shown = i > j ? values?.pearson : values?.spearman;
      const td = el("td", { className: "n", textContent: text(shown) });
      td.style.background = color(shown ?? null);
      td.style.color = inkOn(color(shown ?? null));
      return td;
    })])),
  ]);
}

export const scatterView: View = {
  show(place, page) {
    showResults(place, page, ["clearhead.scatter", "clearhead.correlation"],
      "No scatter results here. Write one with `clearhead scatter … --json > DIR/scatter.json`, then start with `--results DIR`.",
      (json) => ((json["sections"] as Section[] | undefined) ?? []).map((section) => el("section", {}, [
        el("h2", { textContent: section.label }),
        el("p", { textContent: section.r === undefined
          ? `${section.pairs} pairs of tokens. Below the diagonal Pearson's r, above it Spearman's; on it each head's weights (log counts).`
          : `Correlation of every pair of ${section.heads.length} heads, clustered; blue is positive, orange negative.` }),
        section.r === undefined ? el("div", { className: "wide" }, [table(section)]) : matrix(section)])));
  },
};
