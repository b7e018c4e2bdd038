// One token: which keys it reads and who reads it, as shading of the text and as arcs.
import * as d3 from "d3";
import type { TokenRows } from "../data/types";
import { el, hideTip, quoted, selectOf, showTip } from "../dom";
import { inkOn } from "../draw/ink";
import { positionOf, questionOf, type Page, type View } from "../page";
import { headNames } from "./grid";
import { headIndex } from "../data/source";

const blue = d3.rgb("#0b5cad"), orange = d3.rgb("#a04000");

// Mean over all heads, or one head's row, scaled so that the largest is visible.
function rowOf(rows: Float32Array, T: number, index: number): Float64Array {
  const heads = rows.length / T;
  const row = new Float64Array(T);
  for (let h = 0; h < heads; ++h) {
    if (index >= 0 && h !== index) continue;
    for (let i = 0; i < T; ++i) row[i] = (row[i] ?? 0) + (rows[h * T + i] ?? 0) / (index >= 0 ? 1 : heads);
  }
  return row;
}

function shade(color: d3.RGBColor, share: number): string {
  return d3.interpolateRgb("#ffffff", color.formatHex())(share);
}

function arcs(tokens: string[], at: number, reads: Float64Array, readBy: Float64Array): SVGSVGElement | null {
  const widths = tokens.map((token) => Math.max(14, 8 * Math.min(14, token.length) + 4));
  const starts = d3.cumsum([0, ...widths]);
  const x = (i: number) => (starts[i] ?? 0) + (widths[i] ?? 0) / 2 + 8;
  const farthest = d3.max(d3.range(tokens.length), (i) => ((reads[i] ?? 0) > 0.01 || (readBy[i] ?? 0) > 0.01 ? Math.abs(x(i) - x(at)) : 0)) ?? 0;
  const height = Math.max(30, Math.min(90, farthest / 2 + 10));
  const svg = d3.create("svg").attr("width", (starts[tokens.length] ?? 0) + 16).attr("height", 2 * height + 28);
  const arc = (i: number, weight: number, most: number, up: boolean, color: string) => {
    const share = weight / most;
    if (share < 0.02) return;
    const y = up ? height : height + 24;
    const span = Math.abs(x(i) - x(at));
    const rise = Math.min(height - 4, span / 2 + 4) * (up ? -1 : 1);
    const path = i === at ? `M${x(i) - 5},${y} q5,${up ? -16 : 16} 10,0` : `M${x(at)},${y} C${x(at)},${y + rise * 1.33} ${x(i)},${y + rise * 1.33} ${x(i)},${y}`;
    svg.append("path").attr("d", path).attr("fill", "none").attr("stroke", color)
      .attr("stroke-width", 0.5 + 4 * share).attr("stroke-opacity", 0.2 + 0.8 * share);
  };
  const mostRead = Math.max(1e-9, ...reads), mostReadBy = Math.max(1e-9, ...readBy);
  tokens.forEach((_, i) => {
    arc(i, reads[i] ?? 0, mostRead, true, blue.formatHex());
    arc(i, readBy[i] ?? 0, mostReadBy, false, orange.formatHex());
  });
  svg.append("g").selectAll("text").data(tokens).join("text").attr("x", (_, i) => x(i)).attr("y", height + 16)
    .attr("text-anchor", "middle").attr("font-weight", (_, i) => (i === at ? "bold" : "normal"))
    .text((token) => (token.length > 14 ? token.slice(0, 13) + "…" : token.replaceAll("\n", "⏎")));
  return svg.node();
}

function side(page: Page, model: number, rows: TokenRows, choose: (at: number) => void): HTMLElement {
  const { run, store } = page;
  const at = positionOf(store.state, run), T = run.tokens.length;
  const index = store.state.tokenHead === "" ? -1 : headIndex(run, model, store.state.tokenHead);
  const reads = rowOf(rows.reads[model] ?? new Float32Array(), T, index);
  const readBy = rowOf(rows.readBy[model] ?? new Float32Array(), T, index);
  const most = { reads: Math.max(1e-9, ...reads), readBy: Math.max(1e-9, ...readBy) };
  const text = el("div", { className: "text" }, run.tokens.map((token, i) => {
    const read = i <= at;
    const share = read ? (reads[i] ?? 0) / most.reads : (readBy[i] ?? 0) / most.readBy;
    const span = el("span", { className: "token", textContent: token, tabIndex: 0, attributes: { role: "button", "data-at": String(i) } });
    const color = shade(read ? blue : orange, share);
    span.style.background = color;
    span.style.color = inkOn(color);
    if (i === at) span.classList.add("chosen");
    span.onmousemove = (event) => showTip(
      `${quoted(token)} (${i})\nread by ${quoted(run.tokens[at] ?? "")}: ${(reads[i] ?? 0).toFixed(4)}\nreads ${quoted(run.tokens[at] ?? "")}: ${(readBy[i] ?? 0).toFixed(4)}`, event);
    span.onmouseleave = hideTip;
    span.onclick = () => choose(i);
    span.onkeydown = (event) => {
      if (event.key === "Enter") choose(i);
    };
    return span;
  }));
  const drawing = arcs(run.tokens, at, reads, readBy);
  return el("section", {}, [
    el("h2", { textContent: run.models[model]?.label ?? "" }), text,
    el("div", { className: "arcs" }, drawing === null ? [] : [drawing as unknown as HTMLElement]),
  ]);
}

export const tokensView: View = {
  show(place, page) {
    const { store, run } = page;
    const at = positionOf(store.state, run);
    const heads: [string, string][] = [["", "all heads (mean)"], ...headNames(run).map((head): [string, string] => [head, head])];
    const bar = el("div", { className: "bar" }, [
      selectOf("head", store.state.tokenHead, heads, (tokenHead) => store.set({ tokenHead })),
      el("span", { className: "legend" }, [
        `token ${at}: `, el("b", { textContent: quoted(run.tokens[at] ?? "") }), " blue, above: what it reads; orange, below: who reads it. Click a token, or use ",
        el("kbd", { textContent: "[" }), " ", el("kbd", { textContent: "]" }), "."]),
    ]);
    const body = el("div", {}, [el("p", { textContent: "…" })]);
    place.replaceChildren(bar, body);
    void page.source.token(questionOf(store.state, page.overview), run, at).then((rows) => {
      if (!body.isConnected) return;
      body.replaceChildren(...run.models.map((_, m) => side(page, m, rows, (position) => store.set({ position }))));
      for (const place of body.querySelectorAll<HTMLElement>(".arcs")) {
        const chosen = place.querySelectorAll("text")[at]?.getBoundingClientRect().left ?? 0;
        place.scrollLeft = chosen - place.getBoundingClientRect().left - place.clientWidth / 2;
      }
    }, (error: Error) => {
      if (error.name !== "AbortError") body.replaceChildren(el("p", { textContent: error.message }));
    });
  },
};
