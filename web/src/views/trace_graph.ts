// SPDX-License-Identifier: MIT
// The graph of groups as a drawing: positions from left to right over the tokens, layers from below to above, logits on top.
import * as d3 from "d3";
import type { TraceEdge, TraceGraph, TraceNode } from "../data/trace";
import type { Trace } from "../data/types";
import { hideTip, quoted, showTip, signed } from "../dom";
import { activationColor } from "./feature";

const row = 46, left = 6, gap = 6, tokenRow = 44, restRow = 60, logitRow = 40;
const colors = { up: "#0b5cad", down: "#b84a00" } as const;

export interface GraphChoice {
  groups: number; // groups that are drawn, whole or taken apart
  rest: boolean;
  node: string;
  edge: { from: string; to: string } | undefined;
  width: number; // that there is
}

export interface GraphActions {
  chooseNode(node: TraceNode): void;
  chooseEdge(edge: TraceEdge): void;
  unfold(node: TraceNode): void;
}

interface Box {
  node: TraceNode;
  x: number;
  y: number;
  width: number;
  height: number;
}

export function layersText(node: TraceNode): string {
  if (node.first < 0) return "";
  return node.first === node.last ? `layer ${node.first}` : `layers ${node.first}–${node.last}`;
}

export function nodeTitle(node: TraceNode): string {
  if (node.kind === "feature") return node.title;
  if (node.kind === "errors" || node.kind === "others" || node.kind === "position") return node.title;
  return quoted(node.title);
}

export function nodeText(node: TraceNode): string {
  if (node.kind === "logit") return `logit ${quoted(node.title)}`;
  return `${nodeTitle(node)}${node.first < 0 ? "" : `, ${layersText(node)}`}, at ${node.position}`;
}

// What a group is made of, the strongest first.
export function nodeTip(trace: Trace, node: TraceNode): string {
  if (node.kind === "logit") {
    const logit = trace.logits[Number(node.id.slice(6))];
    return `logit ${quoted(node.title)}\n${signed(logit?.value ?? 0, 3)} above the mean, probability ${(100 * (logit?.probability ?? 0)).toFixed(1)} %`;
  }
  const lines = [nodeText(node), `influence ${node.influence.toPrecision(3)}`];
  const strongest = [...node.features].sort((a, b) => (trace.influence[b] ?? 0) - (trace.influence[a] ?? 0));
  for (const f of strongest.slice(0, 12)) {
    const feature = trace.features[f];
    if (feature !== undefined) lines.push(`${feature.name}  ${feature.label.replaceAll("\n", "⏎") || "no label"}  → ${feature.promotes.trim() || quoted(feature.promotes)}  (${feature.activation.toPrecision(3)})`);
  }
  if (strongest.length > 12) lines.push(`and ${strongest.length - 12} more features`);
  return lines.join("\n");
}

export function edgeText(edge: TraceEdge): string {
  return `${nodeText(edge.from)} → ${nodeText(edge.to)}: ${signed(edge.value, 3)}`;
}

// The font is that of `.trace text` in page.css.
const ruler = document.createElement("canvas").getContext("2d");

function textWidth(text: string, bold: boolean): number {
  if (ruler === null) return 6.5 * text.length;
  ruler.font = `${bold ? "bold " : ""}11px system-ui, sans-serif`;
  return ruler.measureText(text).width;
}

function clipped(text: string, width: number, bold = false): string {
  const clean = text.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
  if (textWidth(clean, bold) <= width - 4) return clean;
  let end = clean.length - 1;
  while (end > 1 && textWidth(`${clean.slice(0, end)}…`, bold) > width - 4) --end;
  return `${clean.slice(0, end)}…`;
}

// Tokens, logits, and of the others the most influential; a chosen node and the ends of a chosen edge in any case.
function visibleNodes(graph: TraceGraph, choice: GraphChoice): TraceNode[] {
  const wanted = new Set([choice.node, choice.edge?.from ?? "", choice.edge?.to ?? ""]);
  const groups = d3.rollup(graph.nodes.filter(({ group }) => group >= 0), (members) => d3.sum(members, (node) => node.influence), (node) => node.group);
  const shown = new Set([...groups].sort((a, b) => b[1] - a[1]).slice(0, choice.groups).map(([group]) => group));
  return graph.nodes.filter((node) => shown.has(node.group) || (node.group >= 0 && wanted.has(node.id)) || node.kind === "token" || (node.kind === "logit" && Number(node.id.slice(6)) < 4) ||
    ((choice.rest || wanted.has(node.id)) && (node.kind === "errors" || node.kind === "others" || node.kind === "position")));
}

export function shownEdges(graph: TraceGraph, choice: GraphChoice): TraceEdge[] {
  const shown = new Set(visibleNodes(graph, choice).map(({ id }) => id));
  const among = graph.edges.filter((edge) => shown.has(edge.from.id) && shown.has(edge.to.id));
  const touches = (edge: TraceEdge) => choice.node !== "" && (edge.from.id === choice.node || edge.to.id === choice.node);
  const chosen = among.find((edge) => edge.from.id === choice.edge?.from && edge.to.id === choice.edge?.to);
  const list = choice.node === "" ? among.slice(0, Math.min(100, 2 * choice.groups)) : among.filter(touches).slice(0, 24);
  return chosen === undefined || list.includes(chosen) ? list : [...list, chosen];
}

// Nodes of one position whose layers overlap stand side by side, in lanes; single features three in one place.
const perPlace = 3;

function lanesOf(nodes: TraceNode[]): Map<TraceNode, { lane: number; place: number }> {
  const lanes = new Map<TraceNode, { lane: number; place: number }>(), ends: number[] = [];
  let open = { lane: -1, place: perPlace, layer: -1 }; // where the next feature may go
  for (const node of [...nodes].sort((a, b) => a.first - b.first || b.last - a.last || Number(a.kind === "feature") - Number(b.kind === "feature"))) {
    if (node.kind === "feature" && open.layer === node.first && open.place + 1 < perPlace) {
      open = { ...open, place: open.place + 1 };
      lanes.set(node, open);
      continue;
    }
    let lane = ends.findIndex((end) => end < node.first);
    if (lane < 0) lane = ends.length;
    ends[lane] = node.last;
    lanes.set(node, { lane, place: 0 });
    if (node.kind === "feature") open = { lane, place: 0, layer: node.first };
  }
  return lanes;
}

function layOut(trace: Trace, nodes: TraceNode[], choice: GraphChoice): { boxes: Map<string, Box>; columns: { x: number; width: number }[]; width: number; height: number } {
  const T = trace.tokens.length, rest = nodes.some(({ kind }) => kind === "errors" || kind === "others" || kind === "position");
  const inColumn = trace.tokens.map((_, p) => nodes.filter((node) => node.position === p && (node.kind === "group" || node.kind === "feature")));
  const lanes = inColumn.map(lanesOf);
  const counts = lanes.map((map) => Math.max(-1, ...[...map.values()].map((at) => at.lane)) + 1);
  const apart = inColumn.map((list) => list.some(({ kind }) => kind === "feature"));
  // As wide as there is room for, so that all positions are seen; below a certain width the drawing scrolls.
  const space = choice.width - left - T * gap - 6;
  const widthOf = (lane: number) => counts.map((count, p) => Math.max(rest ? 34 : 0, Math.min(lane, 16 + textWidth(trace.tokens[p] ?? "", false)), count * Math.max(lane, apart[p] === true ? 54 : 0)));
  let lane = 96;
  while (lane > 46 && d3.sum(widthOf(lane)) > space) --lane;
  const widths = widthOf(lane), columns: { x: number; width: number }[] = [];
  let x = left;
  for (const width of widths) {
    columns.push({ x, width });
    x += width + gap;
  }
  const top = logitRow + 14, bottom = top + row * trace.layers;
  const boxes = new Map<string, Box>();
  inColumn.forEach((list, p) => {
    const column = columns[p] ?? { x: 0, width: 0 }, wide = column.width / Math.max(1, counts[p] ?? 1);
    for (const node of list) {
      const { lane: at, place } = lanes[p]?.get(node) ?? { lane: 0, place: 0 }, one = node.kind === "feature";
      boxes.set(node.id, {
        node, x: column.x + wide * at + 1, width: Math.min(wide, 150) - 2,
        y: top + row * (trace.layers - 1 - node.last) + (one ? 1 + 15 * place : 4), height: one ? 14 : row * (node.last - node.first + 1) - 8,
      });
    }
  });
  nodes.filter(({ kind }) => kind === "token").forEach((node) => {
    const column = columns[node.position] ?? { x: 0, width: 0 };
    boxes.set(node.id, { node, x: column.x + 1, width: Math.min(column.width, 150) - 2, y: bottom + (rest ? restRow : 0) + 18, height: tokenRow - 20 });
  });
  const loose = ["errors", "others", "position"];
  for (const node of nodes.filter(({ kind }) => loose.includes(kind))) {
    const column = columns[node.position] ?? { x: 0, width: 0 };
    boxes.set(node.id, { node, x: column.x + 1, width: Math.min(column.width, 150) - 2, y: bottom + 12 + 17 * loose.indexOf(node.kind), height: 15 });
  }
  const right = Math.max(x - gap, left + 4 * 96);
  nodes.filter(({ kind }) => kind === "logit").forEach((node, i) => {
    boxes.set(node.id, { node, x: right - 96 * (i + 1) + 4, width: 92, y: 6, height: logitRow - 8 });
  });
  return { boxes, columns, width: right + 8, height: bottom + (rest ? restRow : 0) + tokenRow + 22 };
}

// From the top of the source to the bottom of the target; where that would lead back down, from side to side.
function pathOf(a: Box, b: Box): string {
  const middle = (box: Box) => box.x + box.width / 2;
  if (b.y + b.height <= a.y + 2) {
    const x0 = middle(a), y0 = a.y, x1 = middle(b), y1 = b.y + b.height + 5, bend = Math.max(14, (y0 - y1) / 2);
    return `M${x0},${y0} C${x0},${y0 - bend} ${x1},${y1 + bend} ${x1},${y1}`;
  }
  const right = middle(b) >= middle(a), x0 = right ? a.x + a.width : a.x, x1 = right ? b.x - 5 : b.x + b.width + 5;
  const y0 = a.y + Math.min(a.height / 2, 30), y1 = b.y + Math.max(b.height / 2, b.height - 30), bend = Math.max(10, Math.abs(x1 - x0) / 2) * (right ? 1 : -1);
  return `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`;
}


const short: Partial<Record<TraceNode["kind"], string>> = { errors: "err", others: "rest", position: "pos" };

// "from large" as "← large": boxes are narrow.
function labelOf(node: TraceNode): string {
  if (node.kind === "group") return node.title.replace(/^from +/, "← ").trim() || quoted(node.title);
  return short[node.kind] ?? (node.kind === "feature" ? node.title : node.title.trim() === "" ? quoted(node.title) : node.title.trim());
}

// Beside the graph, so that they stay when it scrolls.
export const labelWidth = 50;

export function drawLabels(trace: Trace): SVGSVGElement | null {
  const svg = d3.create("svg").attr("class", "trace").attr("width", labelWidth).attr("height", logitRow + 14 + row * trace.layers).attr("aria-hidden", "true");
  svg.append("text").attr("x", 4).attr("y", logitRow / 2 + 6).text("output");
  for (let layer = 0; layer < trace.layers; ++layer) svg.append("text").attr("x", 4).attr("y", logitRow + 14 + row * (trace.layers - 0.5 - layer) + 4).text(`layer ${layer}`);
  return svg.node();
}

export function drawGraph(trace: Trace, graph: TraceGraph, choice: GraphChoice, act: GraphActions): SVGSVGElement | null {
  const nodes = visibleNodes(graph, choice), edges = shownEdges(graph, choice);
  const { boxes, columns, width, height } = layOut(trace, nodes, choice);
  const svg = d3.create("svg").attr("width", width).attr("height", height).attr("class", "trace").attr("role", "group")
    .attr("aria-label", `Attribution graph of ${trace.label}: ${nodes.length} nodes, ${edges.length} edges`);
  const mark = (name: "up" | "down") => svg.append("marker").attr("id", `arrow-${name}-${trace.model}`).attr("viewBox", "0 0 8 8").attr("refX", 4).attr("refY", 4)
    .attr("markerWidth", 7).attr("markerHeight", 7).attr("markerUnits", "userSpaceOnUse").attr("orient", "auto").append("path").attr("d", "M0,0 L8,4 L0,8 z").attr("fill", colors[name]);
  mark("up");
  mark("down");
  for (let layer = 0; layer < trace.layers; ++layer) {
    const y = logitRow + 14 + row * (trace.layers - 1 - layer);
    svg.append("rect").attr("x", left - 2).attr("y", y).attr("width", width - left - 4).attr("height", row).attr("fill", layer % 2 === 0 ? "#f6f8fa" : "#fff");
  }
  columns.forEach(({ x, width: wide }, p) => {
    svg.append("text").attr("x", x + Math.min(wide, 150) / 2).attr("y", height - 6).attr("text-anchor", "middle").attr("class", "soft-text").text(p);
  });

  const strongest = Math.max(1e-12, ...edges.map((edge) => edge.strength));
  const isChosen = (edge: TraceEdge) => edge.from.id === choice.edge?.from && edge.to.id === choice.edge?.to;
  const lines = svg.append("g");
  for (const edge of [...edges].reverse()) {
    const a = boxes.get(edge.from.id), b = boxes.get(edge.to.id);
    if (a === undefined || b === undefined) continue;
    const share = edge.strength / strongest, sign = edge.value < 0 ? "down" : "up", d = pathOf(a, b), chosen = isChosen(edge);
    const line = lines.append("path").attr("d", d).attr("fill", "none").attr("stroke", colors[sign]).attr("stroke-width", (chosen ? 2.5 : 0.8) + 4 * share)
      .attr("stroke-opacity", chosen ? 1 : choice.edge !== undefined && choice.node === "" ? 0.16 + 0.3 * share : 0.3 + 0.6 * share)
      .attr("stroke-dasharray", sign === "down" ? "5 3" : null).attr("marker-end", `url(#arrow-${sign}-${trace.model})`);
    lines.append("path").attr("d", d).attr("class", "hit").attr("data-edge", `${edge.from.id}>${edge.to.id}`).attr("fill", "none").attr("stroke", "transparent").attr("stroke-width", 11)
      .on("mousemove", (event: MouseEvent) => {
        line.attr("stroke-opacity", 1);
        showTip(`${edgeText(edge)}\nclick: the heads that carry it`, event);
      })
      .on("mouseleave", () => {
        line.attr("stroke-opacity", chosen ? 1 : 0.3 + 0.6 * share);
        hideTip();
      })
      .on("click", () => act.chooseEdge(edge));
  }
  const largest = Math.max(1e-12, ...nodes.filter(({ kind }) => kind === "group" || kind === "feature").map((node) => node.influence));
  for (const node of nodes) {
    const box = boxes.get(node.id);
    if (box === undefined) continue;
    const many = node.kind === "group" && node.features.length > 1, end = node.id === choice.edge?.from || node.id === choice.edge?.to;
    const g = svg.append("g").attr("class", `node ${node.kind}`).attr("transform", `translate(${box.x},${box.y})`).attr("tabindex", 0).attr("role", "button").attr("data-node", node.id)
      .attr("aria-pressed", String(node.id === choice.node)).attr("aria-label", `${nodeText(node)}${many ? `, ${node.features.length} features` : ""}`)
      .on("mousemove", (event: MouseEvent) => showTip(nodeTip(trace, node), event)).on("mouseleave", hideTip).on("blur", hideTip)
      .on("focus", (event: FocusEvent) => {
        const target = event.currentTarget as SVGGElement, place = target.getBoundingClientRect();
        if (target.matches(":focus-visible")) showTip(nodeTip(trace, node), { clientX: place.right - 10, clientY: place.bottom - 10 });
      })
      .on("click", () => act.chooseNode(node)).on("dblclick", () => act.unfold(node))
      .on("keydown", (event: KeyboardEvent) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          act.chooseNode(node);
        }
        if (event.key === "e") act.unfold(node);
      });
    const share = node.kind === "group" || node.kind === "feature" ? Math.sqrt(node.influence / largest) : 0;
    if (many) g.append("rect").attr("x", 3).attr("y", -3).attr("width", box.width).attr("height", box.height).attr("rx", 4).attr("fill", "#fff").attr("stroke", "#8c959f");
    g.append("rect").attr("width", box.width).attr("height", box.height).attr("rx", 4).attr("fill", node.kind === "logit" ? "#dbeafe" : share > 0 ? activationColor(0.55 * share) : "#fff")
      .attr("stroke", node.id === choice.node || end ? "#1b1f24" : "#8c959f").attr("stroke-width", node.id === choice.node || end ? 2 : 1);
    const lines2 = node.kind === "group" || node.kind === "logit" ? 2 : 1, y = box.height / 2 + (lines2 === 2 ? -2 : 4);
    g.append("text").attr("x", box.width / 2).attr("y", y).attr("text-anchor", "middle").attr("font-weight", lines2 === 2 ? "bold" : null).text(clipped(labelOf(node), box.width, lines2 === 2));
    if (node.kind === "group") g.append("text").attr("x", box.width / 2).attr("y", y + 13).attr("text-anchor", "middle").attr("class", "soft-text").text(textWidth(`${node.features.length} feat.`, false) <= box.width - 2 ? `${node.features.length} feat.` : node.features.length);
    if (node.kind === "logit") g.append("text").attr("x", box.width / 2).attr("y", y + 13).attr("text-anchor", "middle").attr("class", "soft-text").text(`${(100 * node.influence).toFixed(1)} %`);
  }
  return svg.node();
}
