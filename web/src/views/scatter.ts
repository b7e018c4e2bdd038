// SPDX-License-Identifier: MIT
// How the weights of heads relate: results of `clearhead scatter --json`.
import * as d3 from "d3";
import { drawn, el, hideTip, showTip, signed } from "../dom";
import { inkOn } from "../draw/ink";
import { weightColor } from "../draw/map";
import type { View } from "../page";
import { showResults } from "./circuit";

interface Cell {
  x: string;
  y: string;
  pearson: number | null;
  spearman: number | null;
  counts?: number[]; // [bins of y][bins of x], where the pairs are many
}

interface Section {
  label: string;
  pairs: number;
  heads: string[];
  largest?: number[];
  histograms?: number[][];
  cells?: Cell[];
  points?: number[][]; // [heads][pairs], where they are few
  r?: (number | null)[][];
}

function color(r: number | null): string {
  if (r === null) return "#eaeef2";
  return d3.interpolateRgb("#ffffff", r < 0 ? "#b34a00" : "#08306b")(Math.min(1, Math.abs(r)));
}

const correlation = (r: number | null | undefined) => (r === null || r === undefined ? "undefined" : signed(r, 3));

function matrix(section: Section): HTMLElement {
  const n = section.heads.length, rows = section.r ?? [];
  const canvas = el("canvas", { width: n, height: n, className: "matrix" });
  const context = canvas.getContext("2d");
  rows.forEach((row, i) => {
    row.forEach((r, j) => {
      if (context === null) return;
      context.fillStyle = color(r);
      context.fillRect(j, i, 1, 1);
    });
  });
  canvas.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect();
    const j = Math.floor(((event.clientX - box.left) / box.width) * n), i = Math.floor(((event.clientY - box.top) / box.height) * n);
    showTip(`${section.heads[i]} and ${section.heads[j]}: r ${correlation(rows[i]?.[j])}`, event);
  };
  canvas.onmouseleave = hideTip;
  const named = n <= 32; // more labels than that would be too small to read
  const names = (className: string) => el("div", { className }, named ? section.heads.map((head) => el("span", { textContent: head })) : []);
  return el("div", { className: "matrix-frame" }, [names("matrix-rows"), canvas, names("matrix-columns")]);
}

function histogram(counts: number[], largest: number, side: number): SVGSVGElement | null {
  const svg = d3.create("svg").attr("width", side).attr("height", side);
  const most = Math.log1p(Math.max(1, ...counts));
  counts.forEach((count, i) => {
    const h = (Math.log1p(count) / most) * (side - 16);
    svg.append("rect").attr("x", (i * side) / counts.length).attr("y", side - 13 - h).attr("width", side / counts.length - 0.5).attr("height", h).attr("fill", "#0b5cad");
  });
  svg.append("text").attr("x", 0).attr("y", side - 2).text("0");
  svg.append("text").attr("x", side).attr("y", side - 2).attr("text-anchor", "end").text(largest.toFixed(2));
  return svg.node();
}

// A dot for every pair of tokens, or how many fall into each bin; large weights at the top and the right.
function cloud(section: Section, x: number, y: number, side: number): HTMLCanvasElement {
  const canvas = el("canvas", { className: "cloud" });
  const scale = devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(side * scale);
  canvas.style.width = canvas.style.height = `${side}px`;
  const context = canvas.getContext("2d");
  if (context === null) return canvas;
  context.scale(scale, scale);
  const xs = section.points?.[x], ys = section.points?.[y];
  const counts = cellOf(section, x, y)?.counts;
  if (xs !== undefined && ys !== undefined) {
    const inset = 3, room = side - 2 * inset;
    context.fillStyle = "rgba(8, 48, 107, 0.4)";
    xs.forEach((weight, i) => {
      const px = inset + (room * weight) / (section.largest?.[x] || 1), py = side - inset - (room * (ys[i] ?? 0)) / (section.largest?.[y] || 1);
      context.beginPath();
      context.arc(px, py, 1.8, 0, 2 * Math.PI);
      context.fill();
    });
  } else if (counts !== undefined) {
    const bins = Math.round(Math.sqrt(counts.length)), most = Math.log1p(Math.max(1, ...counts)), step = side / bins;
    counts.forEach((count, i) => {
      if (count === 0) return;
      // A single pair must show beside half a million.
      context.fillStyle = weightColor(Math.max(1 / 6, Math.log1p(count) / most));
      context.fillRect((i % bins) * step, side - (Math.floor(i / bins) + 1) * step, step + 0.3, step + 0.3);
    });
  }
  return canvas;
}

function cellOf(section: Section, x: number, y: number): Cell | undefined {
  const a = section.heads[x], b = section.heads[y];
  return section.cells?.find((cell) => (cell.x === a && cell.y === b) || (cell.x === b && cell.y === a));
}

function table(section: Section): HTMLElement {
  const n = section.heads.length;
  const side = Math.round(Math.max(52, Math.min(150, (innerWidth / 2 - 130) / n - 14, Math.max(80, (innerHeight - 330) / n - 8))));
  const clouds = section.points !== undefined || section.cells?.some((cell) => cell.counts !== undefined) === true;
  return el("table", { className: "scatter" }, [
    el("tr", {}, [el("th"), ...section.heads.map((head) => el("th", { textContent: head }))]),
    ...section.heads.map((y, i) => el("tr", {}, [el("th", { textContent: y }), ...section.heads.map((x, j) => {
      if (i === j) return el("td", {}, drawn(histogram(section.histograms?.[i] ?? [], section.largest?.[i] ?? 0, side)));
      const values = cellOf(section, j, i);
      const r = values?.pearson ?? null;
      const td = el("td", {});
      if (i > j && clouds) {
        td.append(cloud(section, j, i, side));
      } else {
        td.className = "r";
        td.append(`r ${correlation(r)}`, el("br"), `ρ ${correlation(values?.spearman)}`);
        td.style.background = color(r);
        td.style.color = inkOn(color(r));
      }
      td.onmousemove = (event) => showTip(`${x} (to the right) and ${y} (upwards)\nPearson's r ${correlation(r)}, Spearman's ρ ${correlation(values?.spearman)}`, event);
      td.onmouseleave = hideTip;
      return td;
    })])),
  ]);
}

export const scatterView: View = {
  show(place, page) {
    showResults(place, page, ["clearhead.scatter", "clearhead.correlation"],
      "No scatter plots here. Make one with `clearhead scatter … --json > DIR/scatter.json`, then start with `--results DIR`.",
      (json) => {
        const sections = (json["sections"] as Section[] | undefined) ?? [];
        const text = sections[0]?.r === undefined
          ? `Do two heads look at the same places? Every dot is one of ${sections[0]?.pairs} pairs of tokens; its place is the weight that the column's head (rightwards) and the row's head ` +
            "(upwards) give to it. On the diagonal: how often each weight occurs (log scale). Above it: Pearson's r, Spearman's ρ."
          : "Do two heads look at the same places? Correlation of the weights of every pair of heads, alike ones beside each other. Blue: at the same places; orange: at different ones; grey: a head whose weights never change.";
        return {
          intro: el("p", { className: "soft", textContent: text }),
          sections: sections.map((section) => el("section", {}, [
            el("h2", { textContent: section.label }), section.r === undefined ? el("div", { className: "wide" }, [table(section)]) : matrix(section)])),
        };
      });
  },
};
