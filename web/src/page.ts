// SPDX-License-Identifier: MIT
// What every view gets: the state, the answers, and where they come from.
import type { Overview, Question, Run } from "./data/types";
import type { Source } from "./data/source";
import type { PageState, Store } from "./state";

export interface Page {
  store: Store;
  source: Source;
  overview: Overview;
  run: Run; // with the heads of state.off switched off
  before: Run; // with every head on; the same run where none is off
}

export interface View {
  show(place: HTMLElement, page: Page): void;
  // Whether a change of the state can be shown without building the view anew; does so if it can.
  update?(page: Page, changed: Set<keyof PageState>): boolean;
}

export function questionOf(state: PageState, overview: Overview, off = true): Question {
  return {
    prompt: state.prompt,
    ablate: overview.models.map((_, m) => (off ? state.off[m] ?? [] : [])),
    open_gates: state.openGates,
  };
}

// A report holds no runs with two chosen heads off: there the newly chosen one takes the older one's place.
export function toggleHead(page: Page, model: number, head: string): void {
  const { store, source } = page;
  const off = store.state.off.map((heads) => [...heads]);
  const heads = off[model] ?? [];
  const others = heads.filter((other) => other !== head);
  if (source.live) off[model] = heads.includes(head) ? others : [...others, head];
  else off[model] = heads.length === 1 && others.length === 0 ? [] : [head];
  store.set({ off });
}

// The chosen position; the last where none is, or where the prompt got shorter.
export function positionOf(state: PageState, run: Run): number {
  const last = run.tokens.length - 1;
  return state.position < 0 || state.position > last ? last : state.position;
}
