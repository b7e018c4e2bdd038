// SPDX-License-Identifier: MIT
// What is being looked at. It lives in the address, so a view can be shared and "back" works.
export const viewNames = ["grid", "tokens", "predictions", "ablate", "circuit", "scatter", "features", "trace", "lens"] as const;
export type ViewName = (typeof viewNames)[number];

export interface PageState {
  prompt: string;
  view: ViewName;
  openGates: boolean;
  off: string[][]; // switched-off heads of each model
  head: string; // open in large, or ""
  position: number; // chosen token; -1: the last
  tokenHead: string; // of the Tokens view; "": all heads
  result: number;
  feature: string; // open in large: model and name, "0:L3F512"; or ""
  about: string; // features that have this text
  towards: string; // of the Lens view: the token that is followed; "": what each position predicts
  // Of each model's trace:
  node: string[]; // the chosen one, "group 3", or ""
  edge: string[]; // the chosen one, "group 3>logit 0", or ""
  carrier: string[]; // the head of that edge that is looked at, or ""
  cut: string[][]; // weights that are cut, there or in a head's map, "L2H3.8.5": head, query, key
  unfold: string[][]; // groups that are taken apart, "3"
  groups: number; // of a trace: groups that are drawn
  rest: boolean; // of a trace: errors, position embeddings and features that are in no group too
  above: boolean; // grid: the second model below the first
  size: number; // grid: pixels of a map's side; 0: as large as a layer of heads fits into a row
  layer: string; // grid filters; "": all
  kind: string;
  search: string;
  minImportance: number;
  maxEdges: number; // 0: any
  sort: string;
}

export const initialState: PageState = {
  prompt: "", view: "grid", openGates: false, off: [[], []], head: "", position: -1, tokenHead: "", result: 0, feature: "", about: "", towards: "",
  node: ["", ""], edge: ["", ""], carrier: ["", ""], cut: [[], []], unfold: [[], []], groups: 16, rest: false,
  above: false, size: 0, layer: "", kind: "", search: "", minImportance: 0, maxEdges: 0, sort: "layer",
};

// What belongs to one prompt and means nothing on another.
export const ofPrompt: Partial<PageState> = {
  position: -1, node: ["", ""], edge: ["", ""], carrier: ["", ""], cut: [[], []], unfold: [[], []],
};

export function parseState(hash: string): PageState {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const text = (name: string, initial: string) => fields.get(name) ?? initial;
  const number = (name: string, initial: number) => {
    const value = Number(fields.get(name) ?? NaN);
    return Number.isFinite(value) ? value : initial;
  };
  const heads = (name: string) => (fields.get(name) ?? "").split(",").filter((head) => /^L\d+H\d+$/.test(head));
  const list = (name: string, pattern: RegExp) => (fields.get(name) ?? "").split(",").filter((item) => pattern.test(item));
  const both = <T>(read: (m: number) => T) => [read(0), read(1)];
  const matching = (name: string, pattern: RegExp) => pattern.exec(text(name, ""))?.[0] ?? "";
  const groups = number("groups", initialState.groups);
  const view = viewNames.find((name) => name === fields.get("view")) ?? initialState.view;
  const size = number("size", initialState.size);
  return {
    prompt: text("prompt", ""), view, openGates: fields.has("open"), off: [heads("off0"), heads("off1")],
    head: heads("head")[0] ?? "", position: number("at", -1), tokenHead: heads("of")[0] ?? "", result: number("result", 0),
    feature: /^[01]:L\d+F\d+$/.exec(text("feature", ""))?.[0] ?? "", about: text("about", ""), towards: text("towards", ""),
    node: both((m) => matching(`node${m}`, /^[\w@ ]+$/)), edge: both((m) => matching(`edge${m}`, /^[\w@ ]+>[\w@ ]+$/)), carrier: both((m) => heads(`carrier${m}`)[0] ?? ""),
    cut: both((m) => list(`cut${m}`, /^L\d+H\d+\.\d+\.\d+$/)), unfold: both((m) => list(`unfold${m}`, /^\d+$/)), groups: Math.min(200, Math.max(1, Math.round(groups))), rest: fields.has("rest"),
    above: fields.has("above"), size: size === 0 ? 0 : Math.min(320, Math.max(24, size)),
    layer: text("layer", ""), kind: text("kind", ""), search: text("find", ""),
    minImportance: number("important", 0), maxEdges: number("edges", 0), sort: text("sort", initialState.sort),
  };
}

export function formatState(state: PageState): string {
  const fields = new URLSearchParams();
  const put = (name: string, value: string | number, initial: string | number) => {
    if (value !== initial) fields.set(name, String(value));
  };
  put("prompt", state.prompt, "");
  put("view", state.view, initialState.view);
  if (state.openGates) fields.set("open", "1");
  put("off0", (state.off[0] ?? []).join(","), "");
  put("off1", (state.off[1] ?? []).join(","), "");
  put("head", state.head, "");
  put("at", state.position, -1);
  put("of", state.tokenHead, "");
  put("result", state.result, 0);
  put("feature", state.feature, "");
  put("about", state.about, "");
  put("towards", state.towards, "");
  for (const m of [0, 1]) {
    put(`node${m}`, state.node[m] ?? "", "");
    put(`edge${m}`, state.edge[m] ?? "", "");
    put(`carrier${m}`, state.carrier[m] ?? "", "");
    put(`cut${m}`, (state.cut[m] ?? []).join(","), "");
    put(`unfold${m}`, (state.unfold[m] ?? []).join(","), "");
  }
  put("groups", state.groups, initialState.groups);
  if (state.rest) fields.set("rest", "1");
  if (state.above) fields.set("above", "1");
  put("size", state.size, initialState.size);
  put("layer", state.layer, "");
  put("kind", state.kind, "");
  put("find", state.search, "");
  put("important", state.minImportance, 0);
  put("edges", state.maxEdges, 0);
  put("sort", state.sort, initialState.sort);
  return "#" + fields.toString();
}

export class Store {
  state: PageState = parseState(location.hash);
  private readonly listeners: ((changed: Set<keyof PageState>) => void)[] = [];

  constructor() {
    addEventListener("popstate", () => this.adopt(parseState(location.hash)));
  }

  listen(listener: (changed: Set<keyof PageState>) => void): void {
    this.listeners.push(listener);
  }

  // Moves to another prompt, view, head, feature or edge are steps that "back" undoes; smaller changes are not.
  set(change: Partial<PageState>): void {
    const step = "prompt" in change || "view" in change || "head" in change || "feature" in change || "edge" in change;
    const next = { ...this.state, ...change };
    const address = formatState(next);
    if (address !== formatState(this.state)) {
      if (step) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
    }
    this.adopt(next);
  }

  private adopt(next: PageState): void {
    const changed = new Set<keyof PageState>();
    for (const key of Object.keys(next) as (keyof PageState)[]) {
      if (JSON.stringify(next[key]) !== JSON.stringify(this.state[key])) changed.add(key);
    }
    this.state = next;
    if (changed.size > 0) for (const listener of this.listeners) listener(changed);
  }
}
