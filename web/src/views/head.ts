// One head in large, in every model: tokens on both axes, its numbers, its name and what that means.
import * as d3 from "d3";
import { headIndex } from "../data/source";
import type { HeadInfo } from "../data/types";
import { byId, el, hideTip, quoted, showTip } from "../dom";
import { cellAt, drawMap } from "../draw/map";
import { questionOf, toggleHead, type Page } from "../page";
import { chosenHeads } from "./grid";

const margin = 90;

const rows: [string, (head: HeadInfo) => string][] = [
  ["name", (head) => head.name],
  ["score, margin", (head) => `${head.score.toFixed(2)}, ${head.margin.toFixed(2)}`],
  ["importance", (head) => head.importance.toFixed(3)],
  ["on the first token", (head) => head.first.toFixed(3)],
  ["on the previous token", (head) => head.previous.toFixed(3)],
  ["on the token itself", (head) => head.self.toFixed(3)],
  ["mean peak", (head) => head.mean_peak.toFixed(3)],
  ["effective keys", (head) => head.effective_keys.toFixed(2)],
  ["open edges per query", (head) => `${head.open_edges_per_query.toFixed(2)} (${(100 * head.edge_fraction).toFixed(1)} %)`],
];

function bigMap(page: Page, model: number, head: string, weights: Float32Array): HTMLElement {
  const tokens = page.run.tokens;
  const T = tokens.length;
  const side = Math.max(240, Math.min(560, innerHeight - 330, innerWidth / page.run.models.length - margin - 70));
  const scale = d3.scaleBand<number>().domain(d3.range(T)).range([0, side]);
  const every = Math.ceil(12 / scale.bandwidth());
  const shown = d3.range(T).filter((i) => i % every === 0);
  const label = (i: number) => {
    const text = (tokens[i] ?? "").replaceAll("\n", "⏎");
    return text.length > 12 ? text.slice(0, 11) + "…" : text.replace(/^ /, "·");
  };
  const svg = d3.create("svg").attr("width", side + margin).attr("height", side + margin);
  const axis = (g: d3.Selection<SVGGElement, undefined, null, undefined>) => g.select(".domain").remove();
  const left = svg.append("g").attr("transform", `translate(${margin - 4},${margin})`);
  left.call(d3.axisLeft(scale).tickValues(shown).tickFormat(label).tickSize(3));
  axis(left);
  const top = svg.append("g").attr("transform", `translate(${margin},${margin - 4})`);
  top.call(d3.axisTop(scale).tickValues(shown).tickFormat(label).tickSize(3));
  top.selectAll("text").attr("transform", "rotate(-60)").attr("text-anchor", "start").attr("dx", 6).attr("dy", 2);
  axis(top);
  const cross = svg.append("g").attr("fill", "none").attr("stroke", "#a04000");

  const canvas = el("canvas", { attributes: { "data-big": String(model) } });
  drawMap(canvas, weights, T);
  Object.assign(canvas.style, { left: `${margin}px`, top: `${margin}px`, width: `${side}px`, height: `${side}px`, outline: "1px solid #d0d7de" });
  canvas.onmousemove = (event) => {
    const cell = cellAt(canvas, T, event);
    cross.selectAll("*").remove();
    if (cell === undefined) return hideTip();
    const { query, key } = cell;
    cross.append("line").attr("x1", margin - 20).attr("x2", margin).attr("y1", margin + (scale(query) ?? 0) + scale.bandwidth() / 2)
      .attr("y2", margin + (scale(query) ?? 0) + scale.bandwidth() / 2);
    cross.append("line").attr("y1", margin - 20).attr("y2", margin).attr("x1", margin + (scale(key) ?? 0) + scale.bandwidth() / 2)
      .attr("x2", margin + (scale(key) ?? 0) + scale.bandwidth() / 2);
    showTip(`${head}: ${quoted(tokens[query] ?? "")} (${query}) reads ${quoted(tokens[key] ?? "")} (${key})\n` +
      `weight ${(weights[query * T + key] ?? 0).toFixed(4)}`, event);
  };
  canvas.onmouseleave = () => {
    cross.selectAll("*").remove();
    hideTip();
  };
  const place = el("div", { className: "big" }, [canvas]);
  const node = svg.node();
  if (node !== null) place.prepend(node);
  return place;
}

function side(page: Page, model: number, head: string, weights: Float32Array | undefined): HTMLElement {
  const run = page.run.models[model];
  const info = run?.heads[headIndex(page.run, model, head)];
  const title = el("h2", { textContent: run?.label ?? "" });
  if (run === undefined || info === undefined || weights === undefined) {
    return el("section", {}, [title, el("p", { textContent: "This model has no such head." })]);
  }
  const off = el("input", { type: "checkbox", checked: run.ablated.includes(head), disabled: !page.source.live });
  off.onchange = () => toggleHead(page.store, model, head);
  return el("section", {}, [
    title,
    el("p", { className: "sentence" }, [el("span", { className: "kind", textContent: info.kind + ". " }), info.sentence]),
    bigMap(page, model, head, weights),
    el("label", {}, [off, page.source.live ? " switched off" : " switched off (needs clearhead serve)"]),
    el("table", {}, rows.map(([name, text]) => el("tr", {}, [el("th", { textContent: name }), el("td", { textContent: text(info) })]))),
  ]);
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
      el("h2", { textContent: head }), button("← previous", -1), button("next →", 1), close,
      el("span", {}, ["names and numbers are of this prompt; ", el("kbd", { textContent: "←" }), " ", el("kbd", { textContent: "→" }), " ", el("kbd", { textContent: "Esc" })]),
    ]),
    el("div", { className: "pair" }, page.run.models.map((_, m) => side(page, m, head, maps[m]))));
  dialog.onkeydown = (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  };
  dialog.oncancel = (event) => {
    event.preventDefault();
    store.set({ head: "" });
  };
  if (!dialog.open) dialog.showModal();
}
