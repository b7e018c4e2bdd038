// SPDX-License-Identifier: MIT
// One head in large, in every model: tokens on both axes, its name and what that means, its numbers. A click on a cell cuts that edge.
import * as d3 from "d3";
import { headIndex } from "../data/source";
import type { HeadInfo } from "../data/types";
import { byId, drawn, el, hideTip, quoted, showTip } from "../dom";
import { cellAt, drawMap } from "../draw/map";
import { questionOf, toggleHead, type Page } from "../page";
import { cutOutcome, cutsOf, toggleCut } from "./cuts";
import { chosenHeads, infosOf } from "./grid";

const margin = 84, slant = 44; // room for labels: left and top, and right of the last slanted one

const rows: [string, (head: HeadInfo) => string, string][] = [
  ["score, margin", (head) => `${head.score.toFixed(2)}, ${head.margin.toFixed(2)}`, "How well the name fits, and how far ahead of the next one"],
  ["importance", (head) => head.importance.toFixed(3), "How sharply the head picks anything but the first token"],
  ["on the first token", (head) => head.first.toFixed(3), "Mean weight on the first token"],
  ["on the previous token", (head) => head.previous.toFixed(3), "Mean weight on the token before"],
  ["on the token itself", (head) => head.self.toFixed(3), "Mean weight on the reading token"],
  ["mean peak", (head) => head.mean_peak.toFixed(3), "Mean of each query's largest weight"],
  ["effective keys", (head) => head.effective_keys.toFixed(2), "How many keys a query spreads over (exp of the entropy)"],
  ["open edges per query", (head) => head.open_edges_per_query.toFixed(2), "Keys with a weight above 0"],
  ["share of edges open", (head) => `${(100 * head.edge_fraction).toFixed(1)} %`, "Of all causal pairs of tokens"],
];

function sideLength(models: number): number {
  const tableWidth = 29 * parseFloat(getComputedStyle(document.body).fontSize); // .numbers of page.css, and its gap
  const dialog = Math.min(0.96 * innerWidth, 1900) - 34;
  const across = (dialog - tableWidth) / models - margin - slant - 16;
  return Math.max(220, Math.min(760, innerHeight - 270, across));
}

function bigMap(page: Page, model: number, head: string, weights: Float32Array): HTMLElement {
  const tokens = page.run.tokens;
  const T = tokens.length;
  const side = sideLength(page.run.models.length);
  const cuts = cutsOf(page, model).filter((cell) => cell.head === head && cell.query < T), cut = new Set(cuts.map(({ query, key }) => `${query} ${key}`));
  const scale = d3.scaleBand<number>().domain(d3.range(T)).range([0, side]);
  const every = Math.ceil(12 / scale.bandwidth());
  const shown = d3.range(T).filter((i) => i % every === 0);
  const label = (i: number) => {
    const text = (tokens[i] ?? "").replaceAll("\n", "⏎");
    return text.length > 11 ? text.slice(0, 10) + "…" : text.replace(/^ /, "·");
  };
  const svg = d3.create("svg").attr("width", side + margin + slant).attr("height", side + margin);
  const axis = (g: d3.Selection<SVGGElement, undefined, null, undefined>) => g.select(".domain").remove();
  const left = svg.append("g").attr("transform", `translate(${margin - 4},${margin})`);
  left.call(d3.axisLeft(scale).tickValues(shown).tickFormat(label).tickSize(3));
  axis(left);
  const top = svg.append("g").attr("transform", `translate(${margin},${margin - 4})`);
  top.call(d3.axisTop(scale).tickValues(shown).tickFormat(label).tickSize(3));
  top.selectAll("text").attr("transform", "rotate(-60)").attr("text-anchor", "start").attr("dx", 6).attr("dy", 2);
  axis(top);
  const cross = svg.append("g").attr("fill", "none").attr("stroke", "#a04000").attr("stroke-width", 2);

  const canvas = el("canvas", { attributes: { "data-big": String(model) } });
  drawMap(canvas, weights, T);
  Object.assign(canvas.style, { left: `${margin}px`, top: `${margin}px`, width: `${side}px`, height: `${side}px`, outline: "1px solid #d0d7de" });
  canvas.onmousemove = (event) => {
    const cell = cellAt(canvas, T, event);
    cross.selectAll("*").remove();
    if (cell === undefined) return hideTip();
    const { query, key } = cell;
    const at = (i: number) => margin + (scale(i) ?? 0) + scale.bandwidth() / 2;
    cross.append("line").attr("x1", margin - 20).attr("x2", margin).attr("y1", at(query)).attr("y2", at(query));
    cross.append("line").attr("y1", margin - 20).attr("y2", margin).attr("x1", at(key)).attr("x2", at(key));
    showTip(`${head}: ${quoted(tokens[query] ?? "")} (${query}) reads ${quoted(tokens[key] ?? "")} (${key})\n` +
      `weight ${(weights[query * T + key] ?? 0).toFixed(4)}${cut.has(`${query} ${key}`) ? ", cut: click restores it" : "; click cuts it"}`, event);
  };
  canvas.onclick = (event) => {
    const cell = cellAt(canvas, T, event);
    if (cell === undefined) return;
    hideTip();
    toggleCut(page, model, { head, ...cell });
  };
  canvas.onmouseleave = () => {
    cross.selectAll("*").remove();
    hideTip();
  };
  const marks = cuts.map(({ query, key }) => {
    const mark = el("span", { className: "cut-mark" });
    Object.assign(mark.style, { left: `${margin + (side * key) / T}px`, top: `${margin + (side * query) / T}px`, width: `${side / T}px`, height: `${side / T}px` });
    return mark;
  });
  return el("div", { className: "big" }, [...drawn(svg.node()), canvas, ...marks]);
}

function side(page: Page, model: number, head: string, weights: Float32Array | undefined): HTMLElement {
  const run = page.run.models[model];
  const info = run?.heads[headIndex(page.run, model, head)];
  const title = el("h2", { textContent: run?.label ?? "" });
  if (run === undefined || info === undefined || weights === undefined) {
    return el("section", {}, [title, el("p", { textContent: "This model has no such head." })]);
  }
  const off = el("input", { type: "checkbox", checked: run.ablated.includes(head) });
  off.onchange = () => toggleHead(page, model, head);
  const section = el("section", {}, [
    el("div", { className: "bar" }, [title, el("label", {}, [off, "switched off"])]),
    el("p", { className: "sentence" }, [el("span", { className: "kind", textContent: info.name + ". " }), info.sentence]),
    bigMap(page, model, head, weights), ...cutOutcome(page, model),
  ]);
  section.style.width = `${sideLength(page.run.models.length) + margin + slant}px`;
  return section;
}

function numbers(page: Page, head: string): HTMLElement {
  const infos = infosOf(page.run, head);
  return el("section", { className: "numbers" }, [el("table", {}, [
    el("tr", {}, [el("th"), ...page.run.models.map((model) => el("th", { textContent: model.label }))]),
    ...rows.map(([name, text, meaning]) => el("tr", { title: meaning }, [
      el("th", { textContent: name }), ...infos.map((info) => el("td", { textContent: info === undefined ? "–" : text(info) }))])),
  ]), el("p", { className: "soft", textContent: "Rows of the map read, columns are read. Name and numbers are of this prompt; `clearhead heads --text` gives them over a text." }),
    el("p", { className: "soft", textContent: "Click a cell of a map to cut that edge: its weight becomes 0, the others stay, and the model runs anew." })]);
}

export async function showHead(page: Page): Promise<void> {
  const { store } = page;
  const dialog = byId<HTMLDialogElement>("head");
  const head = store.state.head;
  if (head === "") {
    if (dialog.open) dialog.close();
    return;
  }
  const maps = await page.source.head(questionOf(store.state, page.overview), page.run, head);
  if (store.state.head !== head) return; // another head was opened meanwhile
  const close = el("button", { textContent: "Close" });
  close.onclick = () => store.set({ head: "" });
  const heads = chosenHeads(page.run, store.state);
  const step = (by: number) => {
    const next = heads[heads.indexOf(head) + by];
    if (next !== undefined) store.set({ head: next });
  };
  const button = (text: string, by: number) => {
    const result = el("button", { textContent: text });
    result.onclick = () => step(by);
    return result;
  };
  dialog.replaceChildren(
    el("div", { className: "bar" }, [
      el("h2", { className: "head-name", textContent: `Head ${head}` }), button("← previous", -1), button("next →", 1), close,
      el("span", {}, [el("kbd", { textContent: "←" }), " ", el("kbd", { textContent: "→" }), " ", el("kbd", { textContent: "Esc" })]),
    ]),
    el("div", { className: "maps-and-numbers" }, [...page.run.models.map((_, m) => side(page, m, head, maps[m])), numbers(page, head)]));
  dialog.onkeydown = (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  };
  dialog.oncancel = (event) => {
    event.preventDefault();
    store.set({ head: "" });
  };
  if (!dialog.open) dialog.showModal();
  dialog.focus();
}
