// SPDX-License-Identifier: MIT
// Circuits that `clearhead circuit` found: the heads, the edges between them, and how much of the behaviour they keep.
import * as d3 from "d3";
import type { ModelInfo, Overview } from "../data/types";
import { drawn, el, hideTip, selectOf, showTip, signed, signedPercent } from "../dom";
import type { Page, View } from "../page";

interface Node {
  head?: string;
  mlp?: string;
  layer: number;
  index?: number;
  importance: number | null;
  share: number;
  role?: string;
}

interface Point {
  size: number;
  faithfulness: number | null;
}

interface Circuit {
  model: string;
  task: string;
  metric: string;
  ablation?: string;
  layers: number;
  heads_per_layer: number;
  items: number;
  clean_metric: number;
  corrupted_metric: number;
  at_90?: number;
  total?: number;
  heads: Node[];
  mlps: Node[];
  curve?: Point[];
  random?: Point[];
  edges?: { edges_at_90: { edge: string; score: number }[] };
}

// Shares are null where the model does not tell clean from corrupted prompts.
function circuitsOf(json: Record<string, unknown>): Circuit[] {
  const circuits = (json["models"] as Circuit[] | undefined) ?? [json as unknown as Circuit];
  const known = (node: Node): Node => ({ ...node, share: node.share ?? 0, importance: node.importance ?? 0 });
  const drawn = (points: Point[] | undefined) => (points ?? []).filter((point) => point.faithfulness !== null);
  return circuits.map((circuit) => ({
    ...circuit, heads: circuit.heads.map(known), mlps: circuit.mlps.map(known), curve: drawn(circuit.curve), random: drawn(circuit.random),
  }));
}

export function circuitResults(overview: Overview): { index: number; name: string }[] {
  return overview.results.flatMap(({ name, schema }, index) => (schema.startsWith("clearhead.circuit") ? [{ index, name }] : []));
}

// "sums" of "sums/circuit.json": the folder that `clearhead circuit --out` wrote.
export function resultTitle(name: string): string {
  return name.replace(/\/circuit\.json$/, "").replace(/\.json$/, "");
}

// The heads that reach 90 %, of the circuit with this model's label or, failing that, at its place; none if its shape is another.
export function circuitHeads(json: Record<string, unknown>, info: ModelInfo, place: number): string[] {
  const circuits = circuitsOf(json);
  const circuit = circuits.find((candidate) => candidate.model === info.label) ?? circuits[place] ?? circuits[0];
  if (circuit?.layers !== info.layers || circuit.heads_per_layer !== info.heads_per_layer) return [];
  return circuit.heads.slice(0, circuit.at_90 ?? 0).flatMap((node) => node.head ?? []);
}

// Where an edge enters its head, as in the program's own drawings.
const entries: Record<string, [string, string]> = {
  q: ["#9a6700", "queries"], k: ["#b84a00", "keys"], v: ["#00785a", "values"], "": ["#57606a", "others"],
};

// "a3.h1" and "m3" of edge names to places of the drawing.
function diagram(circuit: Circuit, open: (head: string) => void): SVGSVGElement | null {
  const row = 58, left = 64, top = 40, across = circuit.heads_per_layer + 1;
  const column = Math.max(40, Math.min(72, 560 / across));
  const width = left + column * across + 60;
  const height = top + row * circuit.layers + 30;
  const x = (index: number) => left + column * (index + 0.5);
  const y = (layer: number) => top + row * (circuit.layers - layer - 0.5);
  const mlpY = (layer: number) => y(layer) - row / 2 + 8;
  const inside = new Set(circuit.heads.slice(0, circuit.at_90 ?? 0).map((node) => node.head));
  const svg = d3.create("svg").attr("width", width).attr("height", height).attr("class", "circuit");
  const place = (name: string): [number, number] | undefined => {
    const head = /^a(\d+)\.h(\d+)$/.exec(name), mlp = /^m(\d+)$/.exec(name);
    if (head !== null) return [x(Number(head[2])), y(Number(head[1]))];
    if (mlp !== null) return [x(circuit.heads_per_layer), mlpY(Number(mlp[1]))];
    if (name === "input") return [width / 2, height - 16];
    if (name === "logits") return [width / 2, 18];
    return undefined;
  };
  const edges = circuit.edges?.edges_at_90 ?? [];
  const largest = d3.max(edges, (edge) => Math.abs(edge.score)) ?? 1;
  for (const edge of edges) {
    const entry = /<([qkv])>$/.exec(edge.edge)?.[1] ?? "";
    const [from, to] = edge.edge.replace(/<[qkv]>$/, "").split("->");
    const a = place(from ?? ""), b = place(to ?? "");
    if (a === undefined || b === undefined) continue;
    const share = Math.abs(edge.score) / largest;
    svg.append("path").attr("d", `M${a[0]},${a[1]} C${a[0]},${(a[1] + b[1]) / 2} ${b[0]},${(a[1] + b[1]) / 2} ${b[0]},${b[1]}`).attr("fill", "none")
      .attr("stroke", entries[entry]?.[0] ?? "#57606a").attr("stroke-width", 0.8 + 2.2 * share).attr("stroke-opacity", 0.3 + 0.7 * share)
      .attr("stroke-dasharray", edge.score < 0 ? "4 3" : null)
      .on("mousemove", (event: MouseEvent) => showTip(`${edge.edge}: ${edge.score.toFixed(3)}`, event)).on("mouseleave", hideTip);
  }
  if (edges.length > 0) {
    svg.append("text").attr("x", width / 2).attr("y", height - 4).attr("text-anchor", "middle").text("input");
    svg.append("text").attr("x", width / 2).attr("y", 12).attr("text-anchor", "middle").text("logits");
  }
  const biggest = d3.max([...circuit.heads, ...circuit.mlps], (node) => Math.abs(node.share)) ?? 1;
  const radius = d3.scaleSqrt([0, biggest], [3, 16]);
  for (let layer = 0; layer < circuit.layers; ++layer) {
    svg.append("text").attr("x", 6).attr("y", y(layer) + 4).text(`layer ${layer}`);
  }
  for (const node of [...circuit.heads, ...circuit.mlps]) {
    const name = node.head ?? node.mlp ?? "";
    const isIn = inside.has(node.head);
    const cx = node.head !== undefined ? x(node.index ?? 0) : x(circuit.heads_per_layer);
    const cy = node.head !== undefined ? y(node.layer) : mlpY(node.layer);
    const r = radius(Math.abs(node.share));
    const mark = node.head !== undefined
      ? svg.append<SVGElement>("circle").attr("cx", cx).attr("cy", cy).attr("r", r)
      : svg.append<SVGElement>("rect").attr("x", cx - r).attr("y", cy - r).attr("width", 2 * r).attr("height", 2 * r);
    mark.attr("fill", node.share < -0.005 ? "#e0b48f" : isIn ? "#0b5cad" : "#cfe3f7").attr("stroke", isIn ? "#08306b" : "#8c959f")
      .style("cursor", node.head === undefined ? "default" : "pointer")
      .on("mousemove", (event: MouseEvent) => showTip(
        `${name}${isIn ? " (in the circuit)" : ""}: ${signedPercent(node.share)} of the effect${node.role === undefined ? "" : `\n${node.role}`}`, event))
      .on("mouseleave", hideTip)
      .on("click", () => {
        if (node.head !== undefined) open(node.head);
      });
    if (node.mlp !== undefined) svg.append("text").attr("x", cx + r + 4).attr("y", cy + 4).text(name);
    if (isIn) svg.append("text").attr("x", cx).attr("y", cy - r - 3).attr("text-anchor", "middle").attr("font-weight", "bold").text(name);
  }
  return svg.node();
}

function curveChart(circuit: Circuit): SVGSVGElement | null {
  const curve = circuit.curve ?? [];
  if (curve.length === 0) return null;
  const width = 380, height = 190, left = 44, bottom = 34;
  const x = d3.scaleLinear([0, circuit.total ?? d3.max(curve, (point) => point.size) ?? 1], [left, width - 10]);
  const y = d3.scaleLinear([Math.min(0, d3.min(curve, (point) => point.faithfulness ?? 0) ?? 0), 1.1], [height - bottom, 8]);
  const svg = d3.create("svg").attr("width", width).attr("height", height);
  svg.append("g").attr("transform", `translate(0,${height - bottom})`).call(d3.axisBottom(x).ticks(Math.min(6, x.domain()[1] ?? 1)).tickFormat(d3.format("d")));
  svg.append("g").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(5));
  svg.append("text").attr("x", width / 2).attr("y", height - 4).attr("text-anchor", "middle").text("heads kept");
  const line = d3.line<Point>().x((point) => x(point.size)).y((point) => y(point.faithfulness ?? 0));
  svg.append("path").attr("d", line(curve)).attr("fill", "none").attr("stroke", "#0b5cad").attr("stroke-width", 2);
  svg.append("path").attr("d", line(circuit.random ?? [])).attr("fill", "none").attr("stroke", "#57606a").attr("stroke-dasharray", "4 3");
  svg.append("line").attr("x1", left).attr("x2", width - 10).attr("y1", y(0.9)).attr("y2", y(0.9)).attr("stroke", "#a04000").attr("stroke-opacity", 0.5);
  return svg.node();
}

function edgeLegend(): HTMLElement {
  return el("span", {}, ["Lines are edges into ", ...Object.values(entries).flatMap(([color, name], i) => {
    const word = el("b", { textContent: name });
    word.style.color = color;
    return i === 0 ? [word] : [", ", word];
  }), "; dashed: against the task. "]);
}

function side(page: Page, circuit: Circuit): HTMLElement {
  const count = circuit.at_90 ?? 0, total = circuit.total ?? circuit.heads.length;
  const shown = circuit.heads.slice(0, Math.max(count, 5));
  const edges = circuit.edges?.edges_at_90.length ?? 0;
  return el("section", {}, [
    el("h2", { textContent: `${circuit.model}: ${circuit.task}` }),
    el("p", {}, [el("b", { textContent: `${count} of ${total} heads keep 90 % ` }), `of the ${circuit.metric} ` +
      `(${signed(circuit.clean_metric, 2)} on clean prompts, ${signed(circuit.corrupted_metric, 2)} on corrupted ones; ${circuit.items} prompts)` +
      `${edges > 0 ? `, and ${edges} edges do` : ""}.`]),
    el("div", { className: "side-by-side" }, [
      el("div", { className: "wide" }, drawn(diagram(circuit, (head) => page.store.set({ head })))),
      el("div", {}, [
        (circuit.curve ?? []).length === 0 ? "" : el("p", { className: "soft", textContent: "Share of the behaviour that the best heads keep (blue), and random ones (grey, dashed). Line: 90 %." }),
        ...drawn(curveChart(circuit)),
        el("table", {}, [el("tr", {}, ["head", "share", "what it does"].map((text) => el("th", { textContent: text }))),
          ...shown.map((node, i) => el("tr", {}, [
            el("th", { textContent: `${node.head}${i < count ? "" : " (not needed)"}` }), el("td", { className: "n", textContent: signedPercent(node.share) }),
            el("td", { textContent: node.role ?? "" })]))])])]),
  ]);
}

// A choice among the results of a kind, and the chosen one drawn.
export function showResults(place: HTMLElement, page: Page, kinds: string[], none: string,
                            draw: (json: Record<string, unknown>) => { intro?: HTMLElement; sections: HTMLElement[] }): void {
  const fitting = page.overview.results.flatMap((result, index) => (kinds.some((kind) => result.schema.startsWith(kind)) ? [{ ...result, index }] : []));
  if (fitting.length === 0) {
    place.replaceChildren(el("p", { textContent: none }));
    return;
  }
  const chosen = fitting.find((result) => result.index === page.store.state.result) ?? fitting[0];
  const body = el("div", {}, [el("p", { className: "soft", textContent: "Loading …" })]);
  place.replaceChildren(
    el("div", { className: "bar" }, [selectOf("result", String(chosen?.index), fitting.map((result): [string, string] => [String(result.index), resultTitle(result.name)]),
      (value) => page.store.set({ result: Number(value) }))]), body);
  page.source.result(chosen?.index ?? 0).then((json) => {
    const { intro, sections } = draw(json);
    body.replaceChildren(intro ?? "", el("div", { className: "pair" }, sections));
  }).catch((error: Error) => body.replaceChildren(el("p", { textContent: `This file cannot be shown: ${error.message}` })));
}

export const circuitView: View = {
  show(place, page) {
    showResults(place, page, ["clearhead.circuit"],
      "No circuits here. Find one with `clearhead circuit … --out DIR`, then start with `--results DIR`.",
      (json) => {
        const circuits = circuitsOf(json);
        const edges = circuits.some((circuit) => (circuit.edges?.edges_at_90.length ?? 0) > 0);
        return {
          intro: el("p", { className: "soft" }, [`The part of each model that does the task while the rest is ablated: ${circuits[0]?.ablation ?? "?"}. ` +
            "Circles are heads, squares MLPs; larger: more of the effect; " +
            "dark blue: in the circuit; orange: against the task. ", edges ? edgeLegend() : "", "Click a head to see it on the prompt above."]),
          sections: circuits.map((circuit) => side(page, circuit)),
        };
      });
  },
};
