// SPDX-License-Identifier: MIT
// Heads switched off, and what that does to predictions and loss.
import type { HeadInfo } from "../data/types";
import { el, quoted } from "../dom";
import { inkOn } from "../draw/ink";
import { weightColor } from "../draw/map";
import { positionOf, toggleHead, type Page, type View } from "../page";
import { circuitHeads, circuitResults, resultTitle } from "./circuit";
import { distribution } from "./predictions";

function setOff(page: Page, model: number, heads: string[]): void {
  const off = page.store.state.off.map((list) => [...list]);
  off[model] = heads;
  page.store.set({ off });
}

function headButtons(page: Page, model: number): HTMLElement {
  const { store, run, overview } = page;
  const info = overview.models[model];
  const off = new Set(store.state.off[model]);
  const place = el("div", { className: "heads" });
  if (info === undefined) return place;
  place.style.gridTemplateColumns = `repeat(${info.heads_per_layer + 1}, auto)`;
  for (let layer = 0; layer < info.layers; ++layer) {
    const heads = (run.models[model]?.heads ?? []).slice(layer * info.heads_per_layer, (layer + 1) * info.heads_per_layer);
    const names = heads.map((head) => head.head);
    const whole = el("button", { className: "layer", textContent: `layer ${layer}`, title: "Switch the whole layer" });
    whole.onclick = () => {
      const others = page.source.live ? [...off].filter((head) => !names.includes(head)) : [];
      setOff(page, model, names.every((name) => off.has(name)) ? others : [...others, ...names]);
    };
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
  button.onclick = () => toggleHead(page, model, head.head);
  return button;
}

// "all but the circuit" for every result that has a circuit of this model.
function addCircuitButtons(page: Page, model: number, all: string[], place: HTMLElement): void {
  const info = page.overview.models[model];
  if (info === undefined) return;
  for (const { index, name } of circuitResults(page.overview)) {
    const title = resultTitle(name);
    const button = el("button", { textContent: title === "circuit" ? "all but the circuit" : `all but the circuit of ${title}`, hidden: true });
    place.append(button);
    page.source.result(index).then((json) => {
      const kept = circuitHeads(json, info, model);
      button.hidden = kept.length === 0;
      button.title = `Keep ${kept.join(", ")}; switch the others off`;
      button.onclick = () => setOff(page, model, all.filter((head) => !kept.includes(head)));
    }, () => button.remove());
  }
}

function side(page: Page, model: number): HTMLElement {
  const { store, run, before } = page;
  const at = positionOf(store.state, run);
  const now = run.models[model], old = before.models[model];
  const all = (now?.heads ?? []).map((head) => head.head);
  const button = (text: string, heads: string[]) => {
    const result = el("button", { textContent: text });
    result.onclick = () => setOff(page, model, heads);
    return result;
  };
  const buttons = el("div", { className: "bar" }, [button("all on", []), button("all off", all)]);
  addCircuitButtons(page, model, all, buttons);
  const count = now?.ablated.length ?? 0;
  const change = now !== undefined && now.loss !== null && old !== undefined && old.loss !== null ? now.loss - old.loss : undefined;
  return el("section", {}, [
    el("h2", { textContent: now?.label ?? "" }),
    buttons,
    el("p", {}, [`${count} of ${all.length} heads off. Loss ${now?.loss?.toFixed(3) ?? "–"}`,
      change === undefined || count === 0 ? "" : Math.abs(change) < 0.0005 ? " (as before)"
        : el("b", { className: change > 0 ? "up" : "down", textContent: ` (${change > 0 ? "+" : "−"}${Math.abs(change).toFixed(3)})` })]),
    headButtons(page, model),
    el("h2", { textContent: `Expected after token ${at}, ${quoted(run.tokens[at] ?? "")}` }),
    el("div", { attributes: { "data-distribution": String(model) } }, [distribution(now?.predictions[at], count > 0 ? old?.predictions[at] : undefined)]),
  ]);
}

export const ablateView: View = {
  show(place, page) {
    place.replaceChildren(
      el("p", { textContent: page.source.live
        ? "Click a head to switch its output off and see what the model predicts without it. Darker heads pick more sharply on this prompt. Maps and predictions of every view follow."
        : "Click a head to switch its output off and see what the model predicts without it. This file holds the predictions with one head, one layer, all heads, or all but a circuit off; " +
          "maps stay as they are with every head on. Other combinations and other prompts: `clearhead serve`." }),
      el("div", { className: "pair" }, page.run.models.map((_, m) => side(page, m))));
  },
};
