// SPDX-License-Identifier: MIT
// Every head of all models as small maps.
import { headIndex, mapOf } from "../data/source";
import type { HeadInfo, Run } from "../data/types";
import { el, hideTip, quoted, selectOf, showTip } from "../dom";
import { cellAt, drawMap } from "../draw/map";
import type { Page, View } from "../page";
import type { PageState } from "../state";

const sorts: Record<string, (head: HeadInfo) => number> = {
  importance: (head) => head.importance,
  edges: (head) => head.open_edges_per_query,
  score: (head) => head.score,
  "first token": (head) => head.first,
  "previous token": (head) => head.previous,
  self: (head) => head.self,
};

const labelWidth = 62, gap = 8; // of a layer's row; page.css has the same

export function headNames(run: Run): string[] {
  const names = new Set(run.models.flatMap((model) => model.heads.map((info) => info.head)));
  return [...names];
}

export function infosOf(run: Run, head: string): (HeadInfo | undefined)[] {
  return run.models.map((model) => model.heads.find((info) => info.head === head));
}

// A head is shown if it passes in any of the models.
export function chosenHeads(run: Run, state: PageState): string[] {
  const search = state.search.trim().toLowerCase();
  const passes = (info: HeadInfo) =>
    (state.layer === "" || info.head.startsWith(`L${state.layer}H`)) &&
    (state.kind === "" || info.kind === state.kind) &&
    (search === "" || info.name.toLowerCase().includes(search) || info.head.toLowerCase().includes(search)) &&
    info.importance >= state.minImportance &&
    (state.maxEdges === 0 || info.open_edges_per_query <= state.maxEdges);
  const heads = headNames(run).filter((head) => infosOf(run, head).some((info) => info !== undefined && passes(info)));
  const key = sorts[state.sort];
  const last = run.models.length - 1;
  if (key !== undefined) {
    // By the last model, which is the sparse one of a pair.
    const value = (head: string) => {
      const info = infosOf(run, head)[last];
      return info === undefined ? -Infinity : key(info);
    };
    heads.sort((a, b) => value(b) - value(a));
  } else if (state.sort === "difference") {
    const value = (head: string) => {
      const infos = infosOf(run, head);
      return Math.abs((infos[0]?.importance ?? 0) - (infos[last]?.importance ?? 0));
    };
    heads.sort((a, b) => value(b) - value(a));
  } else if (state.sort === "kind") {
    const value = (head: string) => infosOf(run, head)[last]?.kind ?? "";
    heads.sort((a, b) => value(a).localeCompare(value(b)));
  }
  return heads;
}

// What a cell says: the pair of tokens, and the weight in every model.
export function describeCell(run: Run, head: string, query: number, key: number): string {
  const per = run.tokensPerCell;
  const name = (cell: number) => {
    const first = cell * per, last = Math.min(run.tokens.length, first + per) - 1;
    const text = quoted(run.tokens[first] ?? "");
    return first === last ? `${text} (${first})` : `${text} … ${quoted(run.tokens[last] ?? "")} (${first}–${last})`;
  };
  const lines = run.models.map((model, m) => {
    const index = headIndex(run, m, head);
    const weight = index < 0 ? undefined : mapOf(run, m, index)[query * run.cells + key];
    return `${model.label}: ${weight === undefined ? "no such head" : weight.toFixed(4)}`;
  });
  return `${head}: ${name(query)} reads ${name(key)}\n${lines.join("\n")}`;
}

// Pixels of a map's side with which a layer's heads fit into one row, and a few layers onto the screen.
function fittingSize(page: Page, width: number): number {
  const perRow = Math.max(...page.overview.models.map((model) => model.heads_per_layer));
  const across = page.store.state.above ? 1 : page.run.models.length;
  const card = (width - labelWidth - perRow * gap) / perRow;
  const layers = Math.min(5, Math.max(...page.overview.models.map((model) => model.layers)));
  const high = (innerHeight - 230) / layers / (page.store.state.above ? page.run.models.length : 1) - 48;
  return Math.floor(Math.max(32, Math.min(160, Math.max(64, high), (card - 10 - 4 * (across - 1)) / across)));
}

function controls(page: Page, mapSize: number): HTMLElement {
  const { store, run } = page;
  const state = store.state;
  const layers = Math.max(...page.overview.models.map((model) => model.layers));
  const kinds = [...new Set(run.models.flatMap((model) => model.heads.map((info) => info.kind)))].sort();
  const number = (label: string, value: number, step: string, change: (value: number) => void) => {
    const input = el("input", { type: "number", min: "0", step, placeholder: "any", value: value === 0 ? "" : String(value) });
    input.onchange = () => change(Number(input.value) || 0);
    return el("label", {}, [label, input]);
  };
  const find = el("input", { type: "text", value: state.search, placeholder: "name or L0H1" });
  find.oninput = () => store.set({ search: find.value });
  const size = el("input", { type: "range", min: "24", max: "320", value: String(mapSize), id: "map-size" });
  size.oninput = () => store.set({ size: Number(size.value) });
  const above = el("input", { type: "checkbox", checked: state.above });
  above.onchange = () => store.set({ above: above.checked });
  const all = (names: string[]): [string, string][] => [["", "all"], ...names.map((name): [string, string] => [name, name])];
  return el("div", { className: "bar" }, [
    selectOf("layer", state.layer, all([...Array(layers).keys()].map(String)), (layer) => store.set({ layer })),
    selectOf("kind", state.kind, all(kinds), (kind) => store.set({ kind })),
    el("label", {}, ["find", find]),
    number("importance ≥", state.minImportance, "0.05", (minImportance) => store.set({ minImportance })),
    number("edges ≤", state.maxEdges, "0.5", (maxEdges) => store.set({ maxEdges })),
    selectOf("sort by", state.sort, ["layer", ...Object.keys(sorts), "kind", "difference"].map((name): [string, string] => [name, name]),
      (sort) => store.set({ sort })),
    el("label", {}, ["size", size]),
    run.models.length > 1 ? el("label", {}, [above, "stacked"]) : "",
  ]);
}

class GridView implements View {
  private page: Page | undefined;
  private cards: HTMLElement | undefined;
  private count: HTMLElement | undefined;

  show(place: HTMLElement, page: Page): void {
    this.page = page;
    this.cards = el("div", { className: "cards" });
    this.count = el("p", { className: "bar" });
    place.replaceChildren(this.count, this.cards);
    place.prepend(controls(page, this.size()));
    this.cards.onkeydown = (event) => moveFocus(event);
    this.fill(page);
  }

  update(page: Page, changed: Set<keyof PageState>): boolean {
    if (this.cards === undefined || changed.has("view")) return false;
    const filters: (keyof PageState)[] = ["layer", "kind", "search", "minImportance", "maxEdges", "sort", "above"];
    if (changed.has("size")) this.resize();
    if (filters.some((key) => changed.has(key))) this.fill(page);
    return true;
  }

  private size(): number {
    if (this.page === undefined || this.cards === undefined) return 0;
    return this.page.store.state.size || fittingSize(this.page, this.cards.clientWidth);
  }

  private resize(): void {
    const size = this.size();
    for (const canvas of this.cards?.querySelectorAll("canvas") ?? []) {
      canvas.style.width = canvas.style.height = `${size}px`;
    }
    for (const caption of this.cards?.querySelectorAll("figcaption") ?? []) caption.style.width = `${size}px`;
  }

  private fill(page: Page): void {
    const { run, store } = page;
    const heads = chosenHeads(run, store.state);
    this.cards?.replaceChildren(...(store.state.sort === "layer" ? layerRows(page, heads) : [el("div", { className: "row" }, heads.map((head) => card(page, head)))]));
    if (this.count !== undefined) {
      const order = run.models.length === 1 ? "" : store.state.above
        ? `${run.models.map((model) => model.label).join(" above ")}. ` : `Left ${run.models.map((model) => model.label).join(", right ")}. `;
      this.count.replaceChildren(el("span", {}, [
        el("b", { textContent: `${heads.length} of ${headNames(run).length} heads. ` }),
        `${order}Each square is a head: a row for every token that reads, a column for every token it can read, weight `]),
        el("span", { className: "scale" }, ["0", el("i"), "1"]),
        el("span", {}, [run.tokensPerCell > 1 ? `A cell shows the largest weight of ${run.tokensPerCell} × ${run.tokensPerCell} tokens. ` : "", "Click a head to see it large."]));
    }
    this.resize();
  }
}

// A row for every layer, so that columns are heads.
function layerRows(page: Page, heads: string[]): HTMLElement[] {
  const layers = new Map<string, string[]>();
  for (const head of heads) {
    const layer = head.slice(1, head.indexOf("H"));
    layers.set(layer, [...(layers.get(layer) ?? []), head]);
  }
  return [...layers].map(([layer, names]) => el("div", { className: "row" }, [
    el("span", { className: "layer", textContent: `layer ${layer}` }), ...names.map((head) => card(page, head))]));
}

function card(page: Page, head: string): HTMLElement {
  const { run, store } = page;
  const figures = run.models.map((model, m) => {
    const index = headIndex(run, m, head);
    const canvas = el("canvas", { attributes: { "data-model": String(m), "data-head": head } });
    if (index >= 0) drawMap(canvas, mapOf(run, m, index), run.cells);
    canvas.onmousemove = (event) => {
      const cell = cellAt(canvas, run.cells, event);
      if (cell === undefined) hideTip();
      else showTip(describeCell(run, head, cell.query, cell.key), event);
    };
    canvas.onmouseleave = hideTip;
    const off = model.ablated.includes(head);
    return el("figure", { className: off ? "off" : "" }, [
      canvas, el("figcaption", { textContent: model.heads[index]?.kind ?? "–", title: `${model.label}: ${model.heads[index]?.name ?? "no such head"}` })]);
  });
  const result = el("div", { className: "card", tabIndex: 0, attributes: { role: "button", "data-head": head, "aria-label": `Head ${head}` } }, [
    el("span", { className: "title", textContent: head }),
    el("div", { className: store.state.above ? "maps above" : "maps" }, figures),
  ]);
  result.onclick = () => store.set({ head });
  result.onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      store.set({ head });
    }
  };
  return result;
}

// Arrow keys walk over the cards; up and down to the nearest card of the next row.
function moveFocus(event: KeyboardEvent): void {
  const from = document.activeElement;
  if (!(from instanceof HTMLElement) || !from.classList.contains("card")) return;
  const cards = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>(".card")];
  const at = cards.indexOf(from);
  const { offsetTop, offsetLeft } = from;
  const nearest = (rows: HTMLElement[]) => {
    const closest = Math.min(...rows.map((card) => Math.abs(card.offsetTop - offsetTop)));
    return rows.filter((card) => Math.abs(card.offsetTop - offsetTop) === closest)
      .sort((a, b) => Math.abs(a.offsetLeft - offsetLeft) - Math.abs(b.offsetLeft - offsetLeft))[0];
  };
  let next: HTMLElement | undefined;
  if (event.key === "ArrowLeft") next = cards[at - 1];
  else if (event.key === "ArrowRight") next = cards[at + 1];
  else if (event.key === "ArrowUp") next = nearest(cards.filter((card) => card.offsetTop < offsetTop));
  else if (event.key === "ArrowDown") next = nearest(cards.filter((card) => card.offsetTop > offsetTop));
  else return;
  event.preventDefault();
  next?.focus();
}

export const gridView: View = new GridView();
