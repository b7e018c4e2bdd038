// SPDX-License-Identifier: MIT
// The next-token distribution of every model at every position, with the loss of each.
import * as d3 from "d3";
import type { Prediction, Run } from "../data/types";
import { drawn, el, percent, quoted } from "../dom";
import { positionOf, type Page, type View } from "../page";

const colors = ["#0b5cad", "#a04000"];

export function distribution(prediction: Prediction | undefined, before?: Prediction): HTMLElement {
  // Long prompts of a report have predictions with heads off for their last tokens only.
  if (prediction?.likeliest.length === 0) return el("p", { textContent: "This file holds predictions with heads off for later tokens only: choose one in Tokens, or start `clearhead serve`." });
  const rows = (prediction?.likeliest ?? []).map((likely) => {
    const bar = el("i");
    bar.style.width = `${100 * likely.probability}%`;
    const old = before?.likeliest.find((other) => other.id === likely.id)?.probability;
    const change = before === undefined ? "" : old === undefined ? `was not among the ${before.likeliest.length}` : `was ${percent(old)}`;
    return el("tr", {}, [
      el("td", { className: "barcell" }, [bar, el("span", { textContent: quoted(likely.token) })]),
      el("td", { className: "n", textContent: percent(likely.probability) }),
      el("td", { className: "n", textContent: change })]);
  });
  return el("table", { className: "bars" }, rows);
}

// Tokens below it where they fit, else their numbers. A click chooses a position.
function lossChart(run: Run, at: number, choose: (at: number) => void): SVGSVGElement | null {
  const T = run.tokens.length, named = T <= 48;
  const width = Math.min(1800, Math.max(360, innerWidth - 60)), height = named ? 190 : 150, left = 40, bottom = named ? 62 : 22;
  const losses = run.models.map((model) => model.predictions.map((prediction) => prediction.loss));
  const x = d3.scaleLinear([0, Math.max(1, T - 1)], [left + 12, width - 40]);
  const y = d3.scaleLinear([0, d3.max(losses.flat(), (loss) => loss ?? 0) ?? 1], [height - bottom, 8]).nice();
  const svg = d3.create("svg").attr("width", width).attr("height", height).attr("role", "img").attr("aria-label", "Loss at each position").style("cursor", "pointer");
  const label = (i: number) => (run.tokens[i] ?? "").replaceAll("\n", "⏎").trim().slice(0, 9);
  const below = svg.append("g").attr("transform", `translate(0,${height - bottom})`);
  if (named) {
    below.call(d3.axisBottom(x).tickValues(d3.range(T)).tickFormat((i) => label(Number(i))).tickSize(3));
    below.selectAll("text").attr("transform", "rotate(45)").attr("text-anchor", "start").attr("dx", 4).attr("dy", 2);
  } else {
    below.call(d3.axisBottom(x).ticks(10).tickFormat(d3.format("d")));
  }
  svg.append("g").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(4));
  svg.append("line").attr("x1", x(at)).attr("x2", x(at)).attr("y1", 8).attr("y2", height - bottom).attr("stroke", "#8c959f").attr("stroke-dasharray", "3 3");
  losses.forEach((series, m) => {
    const points = series.flatMap((loss, i): [number, number][] => (loss === null ? [] : [[x(i), y(loss)]]));
    const color = colors[m] ?? "#000";
    svg.append("path").attr("d", d3.line()(points)).attr("fill", "none").attr("stroke", color).attr("stroke-width", 1.5)
      .attr("stroke-dasharray", m === 0 ? null : "6 2");
    if (named) svg.append("g").selectAll("circle").data(points).join("circle").attr("cx", ([px]) => px).attr("cy", ([, py]) => py).attr("r", 2.5).attr("fill", color);
  });
  svg.on("click", (event: MouseEvent) => choose(Math.max(0, Math.min(T - 1, Math.round(x.invert(d3.pointer(event)[0]))))));
  return svg.node();
}

export const predictionsView: View = {
  show(place, page: Page) {
    const { run, store } = page;
    const at = positionOf(store.state, run);
    const means = run.models.flatMap((model, m) => [m === 0 ? "" : ", ", el("b", {
      className: m === 0 ? "reads" : "read-by", textContent: `${model.label} ${model.loss === null ? "–" : model.loss.toFixed(3)} (${m === 0 ? "solid" : "dashed"})` })]);
    const head = el("tr", {}, [
      el("th", { className: "n", textContent: "#" }), el("th", { textContent: "token" }), el("th", { textContent: "next" }),
      ...run.models.flatMap((model) => [el("th", { textContent: `${model.label}: likeliest` }), el("th", { className: "n", textContent: "loss" })])]);
    const rows = run.tokens.map((token, i) => {
      const row = el("tr", { className: i === at ? "chosen" : "", tabIndex: 0, attributes: { "data-at": String(i) } }, [
        el("td", { className: "n", textContent: String(i) }), el("td", { textContent: quoted(token) }),
        el("td", { textContent: i + 1 < run.tokens.length ? quoted(run.tokens[i + 1] ?? "") : "?" }),
        ...run.models.flatMap((model) => {
          const prediction = model.predictions[i];
          const best = prediction?.likeliest.slice(0, 3).map((likely) => `${quoted(likely.token)} ${percent(likely.probability)}`).join("  ");
          return [el("td", { textContent: best ?? "" }),
            el("td", { className: "n", textContent: prediction?.loss === null || prediction === undefined ? "–" : prediction.loss.toFixed(3) })];
        })]);
      row.onclick = () => store.set({ position: i });
      row.onkeydown = (event) => {
        if (event.key === "Enter") store.set({ position: i });
      };
      return row;
    });
    place.replaceChildren(
      el("p", {}, ["How surprised each model is by the next token (loss in nats; lower is better). Mean: ", ...means, ". Click a position to see what the models expect there."]),
      el("div", { className: "wide" }, drawn(lossChart(run, at, (position) => store.set({ position })))),
      el("h2", { textContent: `Expected after token ${at}, ${quoted(run.tokens[at] ?? "")}` }),
      el("div", { className: "pair" }, run.models.map((model) => el("section", {}, [
        el("h2", { textContent: model.label }), distribution(model.predictions[at])]))),
      el("h2", { textContent: "Every position" }),
      el("div", { className: "wide" }, [el("table", {}, [head, ...rows])]));
  },
};
