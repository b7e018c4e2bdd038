// SPDX-License-Identifier: MIT
// The heads that carry an edge of a trace; one head's map with the cell, and why it looks there.
import { Answers } from "../data/answers";
import { headIndex, mapOf } from "../data/source";
import { cellName, type Cell, type TraceEdge } from "../data/trace";
import type { EdgeCarriers, HeadReasons, StreamTerm } from "../data/types";
import { el, hideTip, percent, quoted, showTip, signed } from "../dom";
import { drawMap } from "../draw/map";
import type { Page } from "../page";
import { cutButton, cutsOf, plus, setCuts } from "./cuts";
import { nodeText } from "./trace_graph";

type Child = Node | string;

const splits = new Answers<EdgeCarriers>(100), explained = new Answers<HeadReasons>(200);

function cellsOf(carriers: EdgeCarriers, count: number): Cell[] {
  return carriers.heads.slice(0, count).map(({ head }) => ({ head, query: carriers.query, key: carriers.key }));
}

// Heads that make 80 % above the line; beyond a few below it they are one row.
function headTable(page: Page, model: number, carriers: EdgeCarriers): HTMLElement {
  const chosen = page.store.state.carrier[model], cuts = new Set(cutsOf(page, model).map(cellName));
  const at = carriers.heads.findIndex(({ head }) => head === chosen);
  const listed = Math.min(carriers.heads.length, Math.max(carriers.n80 + 3, at + 1)), most = Math.max(1e-12, ...carriers.heads.map(({ value }) => Math.abs(value)));
  const bar = (value: number) => {
    const mark = el("i", { className: value < 0 ? "against" : "" });
    mark.style.width = `${(100 * Math.abs(value)) / most}%`;
    return mark;
  };
  const rows = carriers.heads.slice(0, listed).map((head, i) => {
    const cell = { head: head.head, query: carriers.query, key: carriers.key };
    const open = el("button", { className: "link", textContent: head.head, attributes: { "data-carrier": head.head, "aria-pressed": String(head.head === chosen) } });
    open.onclick = () => {
      const carrier = [...page.store.state.carrier];
      carrier[model] = head.head === chosen ? "" : head.head;
      page.store.set({ carrier });
    };
    const classes = [i < carriers.n80 ? "in-share" : "", i === carriers.n80 - 1 ? "last-in-share" : "", head.head === chosen ? "chosen" : "", cuts.has(cellName(cell)) ? "is-cut" : ""];
    return el("tr", { className: classes.join(" ").trim(), attributes: { "data-value": String(head.value) } }, [
      el("td", {}, [open]), el("td", { className: "barcell" }, [bar(head.value), el("span", { textContent: plus(head.value) })]),
      el("td", { className: "n", textContent: percent(head.share) }), el("td", { className: "n", textContent: head.weight.toFixed(3) }), el("td", {}, [cutButton(page, model, cell)])]);
  });
  const others = carriers.heads.slice(listed), sum = others.reduce((all, { value }) => all + value, 0);
  if (others.length > 0) rows.push(el("tr", { className: "soft-row", attributes: { "data-value": String(sum) } }, [
    el("td", { textContent: `${others.length} more` }), el("td", { className: "barcell" }, [bar(sum), el("span", { textContent: plus(sum) })]),
    el("td", { className: "n", textContent: percent(others.reduce((all, { share }) => all + share, 0)) }), el("td"), el("td")]));
  const head = el("tr", {}, ["head", "carries", "share", "weight", ""].map((text, i) => el("th", { className: i === 2 || i === 3 ? "n" : "", textContent: text })));
  return el("table", { className: "carriers" }, [head, ...rows]);
}

function splitLine(carriers: EdgeCarriers): HTMLElement {
  const part = (name: string, text: string, value: number) => el("tr", { attributes: { "data-part": name } }, [el("td", { textContent: text }), el("td", { className: "n", textContent: plus(value, 4) })]);
  return el("table", { className: "split" }, [
    part("one_hop", `one hop, ${carriers.key === carriers.query ? "the position reads itself" : `${carriers.query} reads ${carriers.key}`}: the heads below`, carriers.one_hop),
    part("multi_hop", "several hops, one head after another", carriers.multi_hop), part("direct", "direct, past all attention", carriers.direct), part("edge", "the edge", carriers.edge)]);
}

function pairRows(pairs: HeadReasons["raise"], most: number): HTMLElement[] {
  const term = ({ name, label }: StreamTerm) => {
    const cell = el("td", { textContent: name.replaceAll("\n", "⏎") });
    if (label !== undefined && label !== "") cell.append(" ", el("span", { className: "term-label", textContent: label.replaceAll("\n", "⏎") }));
    return cell;
  };
  return pairs.map((pair) => {
    const bar = el("i", { className: pair.value < 0 ? "against" : "" });
    bar.style.width = `${(100 * Math.abs(pair.value)) / most}%`;
    return el("tr", { attributes: { "data-pair": String(pair.value) } }, [term(pair.query), term(pair.key), el("td", { className: "barcell" }, [bar, el("span", { textContent: plus(pair.value, 2) })])]);
  });
}

function reasonsTable(reasons: HeadReasons): Child[] {
  const most = Math.max(1e-12, ...[...reasons.raise, ...reasons.lower].map((pair) => Math.abs(pair.value)));
  const listed = reasons.raise.length + reasons.lower.length;
  const gate = reasons.gate === null ? [] : [el("p", { className: "soft", textContent: reasons.gate.margin > 0
    ? `Its gate is open by ${reasons.gate.margin.toFixed(2)}; ${reasons.gate.turning === 0 ? "no single pair keeps it open" : `without any one of ${reasons.gate.turning} pair${reasons.gate.turning === 1 ? "" : "s"} it would close`}.`
    : `Its gate is closed by ${Math.abs(reasons.gate.margin).toFixed(2)}.` })];
  const title = (text: string) => el("tr", {}, [el("th", { colSpan: 3, textContent: text })]);
  return [
    el("p", {}, ["Score ", el("b", { textContent: signed(reasons.score, 2) }), `, weight ${reasons.weight.toFixed(3)}: what is at the query times what is at the key.`]),
    el("table", { className: "reasons", attributes: { "data-reasons": reasons.head } }, [
      el("tr", {}, [el("th", { textContent: `query, at ${reasons.query}` }), el("th", { textContent: `key, at ${reasons.key}` }), el("th", { textContent: "score" })]),
      ...(reasons.raise.length > 0 ? [title("for it")] : []), ...pairRows(reasons.raise, most),
      ...(reasons.lower.length > 0 ? [title("against it")] : []), ...pairRows(reasons.lower, most),
      el("tr", { className: "soft-row", attributes: { "data-pair": String(reasons.rest) } }, [el("td", { colSpan: 2, textContent: `${reasons.pairs - listed} more pairs` }), el("td", { className: "barcell", textContent: plus(reasons.rest, 2) })])]),
    ...gate];
}

// The head's map with the cell marked; rows read, columns are read.
function mapWithCell(page: Page, model: number, cell: Cell): HTMLElement {
  const run = page.before, T = run.tokens.length, index = headIndex(run, model, cell.head), side = Math.max(120, Math.min(230, 22 * T));
  if (index < 0 || run.tokensPerCell !== 1) return el("p", { className: "soft", textContent: "The map of this prompt is reduced; open the head in large to see it." });
  const canvas = el("canvas", { attributes: { "data-cell-map": cell.head, role: "img", "aria-label": `Map of ${cell.head}; the cell from ${cell.query} to ${cell.key} is marked` } });
  const weights = mapOf(run, model, index);
  drawMap(canvas, weights, T);
  const mark = el("span", { className: "cell-mark" });
  Object.assign(mark.style, { left: `${(100 * cell.key) / T}%`, top: `${(100 * cell.query) / T}%`, width: `${100 / T}%`, height: `${100 / T}%` });
  const frame = el("div", { className: "cell-map" }, [canvas, mark]);
  Object.assign(frame.style, { width: `${side}px`, height: `${side}px` });
  frame.onmousemove = (event) => {
    const box = canvas.getBoundingClientRect();
    const key = Math.floor(((event.clientX - box.left) / box.width) * T), query = Math.floor(((event.clientY - box.top) / box.height) * T);
    if (key >= 0 && key <= query && query < T) showTip(`${quoted(run.tokens[query] ?? "")} (${query}) reads ${quoted(run.tokens[key] ?? "")} (${key})\nweight ${(weights[query * T + key] ?? 0).toFixed(4)}`, event);
    else hideTip();
  };
  frame.onmouseleave = hideTip;
  return el("figure", { className: "cell-figure" }, [frame,
    el("figcaption", { textContent: `${quoted(run.tokens[cell.query] ?? "")} (${cell.query}) reads ${quoted(run.tokens[cell.key] ?? "")} (${cell.key})` })]);
}

function headPanel(page: Page, model: number, cell: Cell): HTMLElement {
  const reasons = el("div", { className: "why" });
  const { prompt } = page.store.state;
  explained.into(reasons, JSON.stringify([model, prompt, cell]), () => page.source.reasons(model, prompt, cell.head, cell.query, cell.key), reasonsTable);
  const large = el("button", { textContent: "open in large" });
  large.onclick = () => page.store.set({ head: cell.head });
  return el("div", { attributes: { "data-head-panel": cell.head } }, [
    el("div", { className: "bar" }, [el("h3", { textContent: `${cell.head}: why it looks there` }), cutButton(page, model, cell), large]),
    el("div", { className: "side-by-side" }, [mapWithCell(page, model, cell), reasons])]);
}

// The panel of a chosen edge; what is chosen in it goes below.
export function edgePanel(page: Page, model: number, edge: TraceEdge, below: HTMLElement): HTMLElement {
  const place = el("div", { attributes: { "data-edge-panel": `${edge.from.id}>${edge.to.id}` } });
  const body = el("div");
  const { prompt } = page.store.state;
  const close = el("button", { textContent: "close", attributes: { "aria-label": "Close the edge" } });
  close.onclick = () => {
    const chosen = [...page.store.state.edge], carrier = [...page.store.state.carrier];
    chosen[model] = carrier[model] = "";
    page.store.set({ edge: chosen, carrier });
  };
  place.append(el("div", { className: "bar" }, [el("h3", { textContent: `${nodeText(edge.from)} → ${nodeText(edge.to)}` }), close]), body);
  splits.into(body, JSON.stringify([model, prompt, edge.from.id, edge.to.id]), () => page.source.carriers(model, prompt, edge.from.id, edge.to.id), (carriers) => {
    const cutAll = el("button", { textContent: `cut ${carriers.n80 === 1 ? "it" : `all ${carriers.n80}`}`, attributes: { "data-cut-all": "" } });
    cutAll.onclick = () => setCuts(page, model, cellsOf(carriers, carriers.n80));
    const head = carriers.heads.find((candidate) => candidate.head === page.store.state.carrier[model]);
    if (head !== undefined) below.replaceChildren(headPanel(page, model, { head: head.head, query: carriers.query, key: carriers.key }));
    return [
      splitLine(carriers),
      carriers.heads.length === 0 ? el("p", { textContent: "No head carries anything of it in one hop." }) : el("p", {}, [
        el("b", { textContent: `${carriers.n80} of ${carriers.of} heads` }), ` carr${carriers.n80 === 1 ? "ies" : "y"} ${percent(carriers.share).replace(".0", "")} of one hop; ${carriers.heads.length} contribute. `, cutAll]),
      ...(carriers.heads.length === 0 ? [] : [el("div", { className: "wide" }, [headTable(page, model, carriers)])])];
  });
  return place;
}
