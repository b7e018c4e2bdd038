// SPDX-License-Identifier: MIT
// One token: which keys it reads and who reads it, as shading of the text and as arcs. Hovering looks, clicking chooses.
import * as d3 from "d3";
import { headIndex } from "../data/source";
import type { TokenRows } from "../data/types";
import { drawn, el, hideTip, quoted, selectOf, showTip } from "../dom";
import { inkOn } from "../draw/ink";
import { positionOf, questionOf, type Page, type View } from "../page";
import { headNames } from "./grid";

const blue = "#0b5cad", orange = "#a04000";
const mostArcs = 40; // more would be one dark band
const patience = 60; // ms that the pointer rests on a token before it is looked at

interface Rows {
  reads: Float64Array; // [T] what the token reads
  readBy: Float64Array; // [T] who reads it
}

// Mean over all heads, or one head's row.
function rowOf(rows: Float32Array, T: number, index: number): Float64Array {
  const heads = rows.length / T;
  const row = new Float64Array(T);
  for (let h = 0; h < heads; ++h) {
    if (index >= 0 && h !== index) continue;
    for (let i = 0; i < T; ++i) row[i] = (row[i] ?? 0) + (rows[h * T + i] ?? 0) / (index >= 0 ? 1 : heads);
  }
  return row;
}

// A token's reading of itself is one weight: drawn as what it reads.
function rowsOf(page: Page, model: number, rows: TokenRows, at: number): Rows {
  const { run, store } = page, T = run.tokens.length;
  const index = store.state.tokenHead === "" ? -1 : headIndex(run, model, store.state.tokenHead);
  const none = new Float32Array();
  const readBy = rowOf(rows.readBy[model] ?? none, T, index);
  readBy[at] = 0;
  return { reads: rowOf(rows.reads[model] ?? none, T, index), readBy };
}

// The largest first, at most `count`, none that is 0.
function strongestOf(row: Float64Array, count: number): number[] {
  return d3.range(row.length).filter((i) => (row[i] ?? 0) > 0).sort((a, b) => (row[b] ?? 0) - (row[a] ?? 0)).slice(0, count);
}

function arcs(tokens: string[], at: number, { reads, readBy }: Rows): SVGSVGElement | null {
  const widths = tokens.map((token) => Math.max(14, 8 * Math.min(14, token.length) + 4));
  const starts = d3.cumsum([0, ...widths]);
  const x = (i: number) => (starts[i] ?? 0) + (widths[i] ?? 0) / 2 + 8;
  const mostRead = Math.max(1e-9, ...reads), mostReadBy = Math.max(1e-9, ...readBy);
  // Each side is as high as its farthest arc needs.
  const room = (row: Float64Array, most: number) => {
    const farthest = d3.max(tokens, (_, i) => ((row[i] ?? 0) / most >= 0.02 ? Math.abs(x(i) - x(at)) : 0)) ?? 0;
    return farthest === 0 ? 22 : Math.min(90, farthest / 2 + 12);
  };
  const above = room(reads, mostRead), below = room(readBy, mostReadBy);
  const svg = d3.create("svg").attr("width", (starts[tokens.length] ?? 0) + 16).attr("height", above + below + 28);
  const drawArc = (i: number, share: number, up: boolean, color: string) => {
    const y = up ? above : above + 24;
    const rise = Math.min((up ? above : below) - 4, Math.abs(x(i) - x(at)) / 2 + 4) * (up ? -1 : 1);
    const path = i === at ? `M${x(i) - 5},${y} q5,-16 10,0` : `M${x(at)},${y} C${x(at)},${y + rise * 1.33} ${x(i)},${y + rise * 1.33} ${x(i)},${y}`;
    svg.append("path").attr("d", path).attr("fill", "none").attr("stroke", color)
      .attr("stroke-width", 0.5 + 4 * share).attr("stroke-opacity", 0.2 + 0.8 * share);
  };
  const drawSide = (row: Float64Array, most: number, up: boolean, color: string) => {
    for (const i of strongestOf(row, mostArcs)) {
      const share = (row[i] ?? 0) / most;
      if (share >= 0.02) drawArc(i, share, up, color);
    }
  };
  drawSide(reads, mostRead, true, blue);
  drawSide(readBy, mostReadBy, false, orange);
  svg.append("g").selectAll("text").data(tokens).join("text").attr("x", (_, i) => x(i)).attr("y", above + 16)
    .attr("text-anchor", "middle").attr("font-weight", (_, i) => (i === at ? "bold" : "normal"))
    .text((token) => (token.length > 14 ? token.slice(0, 13) + "…" : token.replaceAll("\n", "⏎")));
  return svg.node();
}

// "reads “The” 0.41, “sat” 0.20": the strongest few.
function strongest(tokens: string[], row: Float64Array): string {
  return strongestOf(row, 4).map((i) => `${quoted(tokens[i] ?? "")} (${i}) ${(row[i] ?? 0).toFixed(3)}`).join(", ") || "nothing";
}

class Side {
  readonly place: HTMLElement;
  private readonly spans: HTMLElement[];
  private readonly arcs = el("div", { className: "arcs" });
  private rows: Rows = { reads: new Float64Array(), readBy: new Float64Array() };
  private seen = -1;
  private pointer: { at: number; event: MouseEvent } | undefined;

  constructor(private readonly page: Page, private readonly model: number, look: (at: number) => void, leave: () => void) {
    const { run, store } = page;
    this.spans = run.tokens.map((token, i) => {
      const span = el("span", { className: "token", textContent: token, tabIndex: 0, attributes: { role: "button", "data-at": String(i) } });
      span.onmouseenter = () => look(i);
      span.onmousemove = (event) => {
        this.pointer = { at: i, event };
        this.tip();
      };
      span.onmouseleave = () => {
        this.pointer = undefined;
        hideTip();
      };
      span.onclick = () => store.set({ position: i });
      span.onkeydown = (event) => {
        if (event.key === "Enter") store.set({ position: i });
      };
      return span;
    });
    const text = el("div", { className: "text" }, this.spans);
    text.onmouseleave = leave;
    this.place = el("section", {}, [el("h2", { textContent: run.models[model]?.label ?? "" }), text, this.arcs]);
  }

  paint(at: number, chosen: number, rows: TokenRows): void {
    const { tokens } = this.page.run;
    this.rows = rowsOf(this.page, this.model, rows, at);
    this.seen = at;
    const { reads, readBy } = this.rows;
    const most = { reads: Math.max(1e-9, ...reads), readBy: Math.max(1e-9, ...readBy) };
    this.spans.forEach((span, i) => {
      const share = i <= at ? (reads[i] ?? 0) / most.reads : (readBy[i] ?? 0) / most.readBy;
      const color = d3.interpolateRgb("#ffffff", i <= at ? blue : orange)(share);
      span.style.background = color;
      span.style.color = inkOn(color);
      span.classList.toggle("chosen", i === chosen);
      span.classList.toggle("looked", i === at && at !== chosen);
    });
    this.arcs.replaceChildren(...drawn(arcs(tokens, at, this.rows)));
    const text = this.arcs.querySelectorAll("text")[at]?.getBoundingClientRect().left ?? 0;
    this.arcs.scrollLeft += text - this.arcs.getBoundingClientRect().left - this.arcs.clientWidth / 2;
    this.tip();
  }

  // Says what the token below the pointer reads, once that is known.
  private tip(): void {
    if (this.pointer === undefined) return;
    const { run } = this.page, { at, event } = this.pointer;
    if (at !== this.seen) {
      hideTip();
      return;
    }
    showTip(`${run.models[this.model]?.label}: ${quoted(run.tokens[at] ?? "")} (${at})\nreads ${strongest(run.tokens, this.rows.reads)}\n` +
      `read by ${strongest(run.tokens, this.rows.readBy)}`, event);
  }
}

export const tokensView: View = {
  show(place, page) {
    const { store, run, source } = page;
    const chosen = positionOf(store.state, run);
    const heads: [string, string][] = [["", "all heads (mean)"], ...headNames(run).map((head): [string, string] => [head, head])];
    const bar = el("div", { className: "bar" }, [
      selectOf("head", store.state.tokenHead, heads, (tokenHead) => store.set({ tokenHead })),
      el("span", { className: "legend" }, [
        `Token ${chosen}, `, el("b", { textContent: quoted(run.tokens[chosen] ?? "") }), " is chosen. ",
        el("b", { className: "reads", textContent: "Blue, above" }), ": what it reads. ", el("b", { className: "read-by", textContent: "Orange, below" }),
        ": who reads it. Hover over a token to look at it, click to choose it, or use ", el("kbd", { textContent: "[" }), " ", el("kbd", { textContent: "]" }), "."]),
    ]);
    let wanted = -1, timer = 0;
    let chosenRows: TokenRows | undefined; // looked at again and again
    const look = (at: number) => {
      wanted = at;
      const asked = at === chosen && chosenRows !== undefined ? Promise.resolve(chosenRows) : source.token(questionOf(store.state, page.overview), run, at);
      void asked.then((rows) => {
        if (at === chosen) chosenRows = rows;
        if (wanted === at && body.isConnected) for (const side of sides) side.paint(at, chosen, rows);
      }, (error: Error) => {
        if (error.name !== "AbortError" && body.isConnected) body.replaceChildren(el("p", { textContent: error.message }));
      });
    };
    const lookSoon = (at: number) => {
      clearTimeout(timer);
      timer = setTimeout(() => look(at), patience);
    };
    const sides = run.models.map((_, m) => new Side(page, m, lookSoon, () => lookSoon(chosen)));
    const body = el("div", {}, sides.map((side) => side.place));
    place.replaceChildren(bar, body);
    look(chosen);
  },
};
