// Heads switched off, and what that does to predictions and loss.
import type { HeadInfo } from "../data/types";
import { el, quoted } from "../dom";
import { inkOn } from "../draw/ink";
import { weightColor } from "../draw/map";
import { positionOf, toggleHead, type Page, type View } from "../page";
import { circuitHeads } from "./circuit";
import { distribution } from "./predictions";

function headButtons(page: Page, model: number): HTMLElement {
  const { store, run, overview } = page;
  const info = overview.models[model];
  const off = new Set(store.state.off[model]);
  const place = el("div", { className: "heads" });
  if (info === undefined) return place;
  place.style.gridTemplateColumns = `repeat(${info.heads_per_layer + 1}, auto)`;
  const setAll = (heads: string[], value: boolean) => {
    const next = store.state.off.map((list) => [...list]);
    next[model] = value ? [...new Set([...(next[model] ?? []), ...heads])] : (next[model] ?? []).filter((head) => !heads.includes(head));
    store.set({ off: next });
  };
  for (let layer = 0; layer < info.layers; ++layer) {
    const heads = (run.models[model]?.heads ?? []).slice(layer * info.heads_per_layer, (layer + 1) * info.heads_per_layer);
    const names = heads.map((head) => head.head);
    const whole = el("button", { className: "row", textContent: `layer ${layer}`, title: "Switch the whole layer" });
    whole.onclick = () => setAll(names, !names.every((name) => off.has(name)));
    place.append(whole, ...heads.map((head) => headButton(page, model, head, off.has(head.head))));
  }
  return place;
}

function headButton(page: Page, model: number, head: HeadInfo, off: boolean): HTMLElement {
  const button = el("button", {
    textContent: head.head, title: `${head.name}, importance ${head.importance.toFixed(2)}`,
    attributes: { "aria-pressed": String(off), "data-head": head.head, "data-model": String(model) },
  });
  if (!off) {
    const color = weightColor(0.5 * head.importance);
    button.style.background = color;
    button.style.color = inkOn(color);
  }
  button.onclick = () => toggleHead(page.store, model, head.head);
  return button;
}

function side(page: Page, model: number): HTMLElement {
  const { store, run, before, overview } = page;
  const at = positionOf(store.state, run);
  const now = run.models[model], old = before.models[model];
  const all = (now?.heads ?? []).map((head) => head.head);
  const set = (heads: string[]) => {
    const off = store.state.off.map((list) => [...list]);
    off[model] = heads;
    store.set({ off });
  };
  const button = (text: string, heads: () => string[]) => {
    const result = el("button", { textContent: text });
    result.onclick = () => set(heads());
    return result;
  };
  const buttons = [button("all on", () => []), button("all off", () => all)];
  overview.results.forEach((result, index) => {
    if (!result.schema.startsWith("clearhead.circuit")) return;
    const circuit = el("button", { textContent: `all but the circuit of ${result.name}` });
    circuit.onclick = () => void page.source.result(index).then((json) => {
      const kept = circuitHeads(json, now?.label ?? "", model);
      set(all.filter((head) => !kept.includes(head)));
    });
    buttons.push(circuit);
  });
  const count = now?.ablated.length ?? 0;
  const change = now !== undefined && now.loss !== null && old !== undefined && old.loss !== null ? now.loss - old.loss : undefined;
  return el("section", {}, [
    el("h2", { textContent: now?.label ?? "" }),
    el("div", { className: "bar" }, buttons),
    el("p", {}, [`${count} of ${all.length} heads off. Loss ${now?.loss?.toFixed(3) ?? "–"}`,
      change === undefined || count === 0 ? "" : el("b", { className: change > 0 ? "up" : "down", textContent: ` (${change >= 0 ? "+" : ""}${change.toFixed(3)})` })]),
    headButtons(page, model),
    el("h2", { textContent: `After ${quoted(run.tokens[at] ?? "")}` }),
    el("div", { attributes: { "data-distribution": String(model) } }, [distribution(now?.predictions[at], count > 0 ? old?.predictions[at] : undefined)]),
  ]);
}

export const ablateView: View = {
  show(place, page) {
    if (!page.source.live) {
      place.replaceChildren(el("p", { textContent: "Switching heads off runs the models anew: start `clearhead serve` for that. This file holds finished runs only." }));
      return;
    }
    place.replaceChildren(
      el("p", { className: "bar", textContent: "Click a head to switch its output off; darker heads pick more sharply on this prompt. Maps and predictions of every view follow." }),
      el("div", { className: "pair" }, page.run.models.map((_, m) => side(page, m))));
  },
};
