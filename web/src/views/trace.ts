// SPDX-License-Identifier: MIT
// Attribution graphs: which groups of features make which, and the output; a click on an edge gives the heads that carry it.
import { edgeOf, graphOf, traceKey, traces, type TraceEdge, type TraceGraph, type TraceNode } from "../data/trace";
import type { Trace } from "../data/types";
import { drawn, el } from "../dom";
import type { Page, View } from "../page";
import { edgePanel } from "./carriers";
import { cutPanel, plus } from "./cuts";
import { hasFeatures } from "./features";
import { drawGraph, drawLabels, labelWidth, nodeText, type GraphChoice } from "./trace_graph";

type Child = Node | string;

const scrolled = new Map<string, number>(); // how far from the right
let grouped: { trace: Trace; unfolded: string; graph: TraceGraph }[] = []; // the graphs that are on the page

function graphFor(page: Page, model: number, trace: Trace): TraceGraph {
  const unfolded = (page.store.state.unfold[model] ?? []).join();
  const known = grouped.find((entry) => entry.trace === trace && entry.unfolded === unfolded);
  if (known !== undefined) return known.graph;
  const graph = graphOf(trace, new Set((page.store.state.unfold[model] ?? []).map(Number)));
  grouped = [...grouped.filter((entry) => entry.trace.model !== model), { trace, unfolded, graph }];
  return graph;
}

function withValue<T>(list: T[], model: number, value: T): T[] {
  const next = [...list];
  next[model] = value;
  return next;
}

// The edge between what has the same names at the same positions in the other model, the strongest of them.
function twinOf(graph: TraceGraph, edge: TraceEdge): TraceEdge | undefined {
  const alike = (a: TraceNode, b: TraceNode) => a.kind === b.kind && a.title === b.title && a.position === b.position;
  return graph.edges.find((other) => alike(other.from, edge.from) && alike(other.to, edge.to));
}

function chooseEdge(page: Page, model: number, edge: TraceEdge): void {
  const { state } = page.store;
  const chosen = withValue(state.edge, model, `${edge.from.id}>${edge.to.id}`);
  for (let other = 0; other < page.overview.models.length; ++other) {
    const trace = other === model ? undefined : traces.get(traceKey(other, state.prompt));
    const twin = trace === undefined ? undefined : twinOf(graphFor(page, other, trace), edge);
    if (trace !== undefined) chosen[other] = twin === undefined ? "" : `${twin.from.id}>${twin.to.id}`;
  }
  page.store.set({ edge: chosen, carrier: ["", ""] });
}

function chooseNode(page: Page, model: number, node: TraceNode): void {
  const { state } = page.store;
  page.store.set({ node: withValue(state.node, model, state.node[model] === node.id ? "" : node.id), edge: withValue(state.edge, model, ""), carrier: withValue(state.carrier, model, "") });
}

// A group into its features, or a feature back into its group.
function toggleFold(page: Page, model: number, node: TraceNode): void {
  if (node.group < 0) return;
  const { state } = page.store, list = state.unfold[model] ?? [], name = String(node.group);
  const unfold = withValue(state.unfold, model, list.includes(name) ? list.filter((other) => other !== name) : [...list, name]);
  page.store.set({ unfold, node: withValue(state.node, model, ""), edge: withValue(state.edge, model, ""), carrier: withValue(state.carrier, model, "") });
}

function edgeRows(page: Page, model: number, edges: TraceEdge[], other: (edge: TraceEdge) => TraceNode): HTMLElement {
  const most = Math.max(1e-12, ...edges.map((edge) => Math.abs(edge.value)));
  return el("table", { className: "edges" }, edges.map((edge) => {
    const bar = el("i", { className: edge.value < 0 ? "against" : "" }), node = other(edge);
    bar.style.width = `${(100 * Math.abs(edge.value)) / most}%`;
    const open = el("button", { className: "link", textContent: nodeText(node), attributes: { "data-edge-row": `${edge.from.id}>${edge.to.id}` } });
    open.onclick = () => chooseEdge(page, model, edge);
    return el("tr", {}, [el("td", {}, [open]), el("td", { className: "barcell" }, [bar, el("span", { textContent: plus(edge.value) })])]);
  }));
}

// A chosen node: its features, what makes it, what it makes.
function nodePanel(page: Page, model: number, trace: Trace, graph: TraceGraph, node: TraceNode): HTMLElement {
  const into = graph.edges.filter((edge) => edge.to === node).sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 8);
  const out = graph.edges.filter((edge) => edge.from === node).slice(0, 8);
  const fold = el("button", { textContent: node.kind === "feature" ? "back into its group" : "take apart", attributes: { "data-fold": "" } });
  fold.onclick = () => toggleFold(page, model, node);
  const close = el("button", { textContent: "close", attributes: { "aria-label": "Close the node" } });
  close.onclick = () => chooseNode(page, model, node);
  const features = [...node.features].sort((a, b) => (trace.influence[b] ?? 0) - (trace.influence[a] ?? 0)).map((f) => {
    const feature = trace.features[f];
    const open = el("button", { className: "link", textContent: feature?.name ?? "", attributes: { "data-feature": `${model}:${feature?.name ?? ""}` } });
    open.onclick = () => page.store.set({ feature: `${model}:${feature?.name ?? ""}` });
    return el("tr", {}, [el("td", {}, [open]), el("td", { textContent: feature?.label.replaceAll("\n", "⏎") ?? "" }), el("td", { textContent: `→ ${feature?.promotes.trim() ?? ""}` }),
      el("td", { className: "n", textContent: feature?.activation.toPrecision(3) ?? "" }), el("td", { className: "n", textContent: (trace.influence[f] ?? 0).toPrecision(2) })]);
  });
  const list: Child[] = features.length === 0 ? [] : [el("div", {}, [el("h4", { textContent: "Features" }), el("div", { className: "every members" }, [el("table", {}, [
    el("tr", {}, ["feature", "label", "promotes", "activation", "influence"].map((text, i) => el("th", { className: i > 2 ? "n" : "", textContent: text }))), ...features])])])];
  return el("div", { attributes: { "data-node-panel": node.id } }, [
    el("div", { className: "bar" }, [el("h3", { textContent: nodeText(node) }), ...(node.group >= 0 && (node.kind === "feature" || node.features.length > 1) ? [fold] : []), close]),
    ...list,
    el("div", { className: "lists" }, [
      el("div", {}, [el("h4", { textContent: into.length > 0 ? "Made by" : "Made by nothing in the graph" }), edgeRows(page, model, into, (edge) => edge.from)]),
      el("div", {}, [el("h4", { textContent: out.length > 0 ? "Makes" : "Makes nothing in the graph" }), edgeRows(page, model, out, (edge) => edge.to)])])]);
}

function sideWidth(models: number): number {
  const whole = document.documentElement.clientWidth - 34;
  return models > 1 && whole >= 1224 ? (whole - 24) / 2 : whole;
}

function drawSide(page: Page, model: number, trace: Trace): Child[] {
  const { state } = page.store, graph = graphFor(page, model, trace);
  const [from = "", to = ""] = (state.edge[model] ?? "").split(">"), edge = edgeOf(graph, from, to);
  const node = graph.nodes.find(({ id }) => id === state.node[model]);
  const choice: GraphChoice = {
    groups: state.groups, rest: state.rest, node: node?.id ?? "", edge: edge === undefined ? undefined : { from, to }, width: sideWidth(page.overview.models.length) - labelWidth - 4,
  };
  const unfolded = (state.unfold[model] ?? []).flatMap((g) => trace.groups[Number(g)]?.name ?? []);
  const collapse = el("button", { textContent: `put ${unfolded.length} group${unfolded.length === 1 ? "" : "s"} together again`, attributes: { "data-collapse": "" } });
  collapse.onclick = () => page.store.set({ unfold: withValue(state.unfold, model, []), node: withValue(state.node, model, ""), edge: withValue(state.edge, model, ""), carrier: withValue(state.carrier, model, "") });
  const below = el("div"), frame = el("div", { className: "wide" }, drawn(drawGraph(trace, graph, choice, {
    chooseNode: (chosen) => chooseNode(page, model, chosen), chooseEdge: (chosen) => chooseEdge(page, model, chosen), unfold: (chosen) => toggleFold(page, model, chosen),
  })));
  // The output is on the right: what does not fit is first seen from there.
  const key = traceKey(model, trace.prompt);
  requestAnimationFrame(() => {
    const hidden = frame.scrollWidth - frame.clientWidth;
    frame.scrollLeft = hidden - (scrolled.get(key) ?? 0);
    frame.onscroll = () => scrolled.set(key, hidden - frame.scrollLeft);
  });
  return [
    el("p", { className: "soft", textContent: `${trace.active} features fire; ${trace.features.length} of them, in ${trace.groups.length} groups, have most of the influence. ` +
      `Replacement ${trace.replacement.toFixed(3)}, completeness ${trace.completeness.toFixed(3)}.` }),
    el("div", { className: "graph" }, [...drawn(drawLabels(trace)), frame]),
    ...(unfolded.length > 0 ? [el("div", { className: "bar" }, [collapse])] : []),
    ...(node === undefined ? [] : [nodePanel(page, model, trace, graph, node)]),
    el("div", { className: "side-by-side" }, [...(edge === undefined ? [] : [edgePanel(page, model, edge, below)]), cutPanel(page, model)]), below];
}

function side(page: Page, model: number): HTMLElement {
  const info = page.overview.models[model], title = el("h2", { textContent: info?.label ?? "" });
  if ((info?.features ?? null) === null) return el("section", {}, [title, el("p", { textContent: "No features were given for this model." })]);
  const body = el("div"), { prompt } = page.store.state;
  traces.into(body, traceKey(model, prompt), () => page.source.trace(model, prompt), (trace) => {
    document.body.dataset[`traced${model}`] = trace.prompt;
    return drawSide(page, model, trace);
  });
  return el("section", { attributes: { "data-side": String(model) } }, [title, body]);
}

function bar(page: Page): HTMLElement {
  const { state } = page.store;
  const count = el("input", { type: "number", min: "1", max: "200", value: String(state.groups), attributes: { "data-groups": "", "aria-label": "Groups that are drawn" } });
  count.onchange = () => page.store.set({ groups: Math.min(200, Math.max(1, Math.round(Number(count.value) || 16))) });
  const rest = el("input", { type: "checkbox", checked: state.rest, attributes: { "data-rest": "" } });
  rest.onchange = () => page.store.set({ rest: rest.checked });
  return el("div", { className: "bar" }, [
    el("label", {}, ["groups", count]), el("label", { title: "Errors, position embeddings and features that are in no group, as sources too" }, [rest, "the rest too"]),
    el("span", {}, ["lines: ", el("b", { className: "reads", textContent: "for" }), ", ", el("b", { className: "read-by", textContent: "against (dashed)" })])]);
}

// What had the focus has it again when the view is built anew.
const keys = ["data-node", "data-edge-row", "data-carrier", "data-cut", "data-cut-all", "data-fold", "data-restore", "data-groups", "data-rest"];

function focusOf(place: HTMLElement): string {
  const active = document.activeElement;
  if (active === null || !place.contains(active)) return "";
  const key = keys.find((name) => active.hasAttribute(name)), section = active.closest("[data-side]")?.getAttribute("data-side");
  if (key === undefined) return "";
  return `${section === undefined || section === null ? "" : `[data-side="${section}"] `}[${key}="${CSS.escape(active.getAttribute(key) ?? "")}"]`;
}

const explanation = "Attention weights and norms are held as they were on this prompt; then every feature and every logit is a sum over what is before it, and a line is its share in that sum. " +
  "Boxes are groups of features with one meaning, from the first to the last layer they are in. Hover over a box: its features; click it: its lines; double click or e: its features one by one. " +
  "Click a line: the heads that carry it.";

export const traceView: View = {
  show(place, page) {
    if (!hasFeatures(page)) {
      place.replaceChildren(el("p", { textContent: "No features were given, and a trace is made of features. `clearhead serve MODEL --features DIR` traces prompts through those of a transcoder (`clearhead features train`)." }));
      return;
    }
    const focus = focusOf(place);
    const off = page.store.state.off.some((heads) => heads.length > 0) || page.store.state.openGates;
    place.replaceChildren(
      bar(page), el("p", { className: "soft", textContent: explanation }),
      ...(off ? [el("p", { textContent: "Traces are of the models with every head on and with their own gates." })] : []),
      el("div", { className: "pair traces" }, page.run.models.map((_, m) => side(page, m))));
    if (focus !== "") place.querySelector<HTMLElement>(focus)?.focus({ preventScroll: true });
  },
};

