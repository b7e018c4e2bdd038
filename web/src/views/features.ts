// SPDX-License-Identifier: MIT
// Features of the models' MLPs: which fire on each token, layer by layer, with their labels; and features found by text.
import { firingAt, type Firing } from "../data/features";
import type { FoundFeatures, ModelFeatures, PromptFeatures, ShortLabel } from "../data/types";
import { el, hideTip, percent, quoted, showTip } from "../dom";
import { positionOf, questionOf, type Page, type View } from "../page";
import { activationColor } from "./feature";

const patience = 250; // ms without a key before a text is looked for

// What was last asked; a view that is built anew needs no new run.
let asked: { key: string; answer: Promise<PromptFeatures> } | undefined;

export function featuresOnPrompt(page: Page): Promise<PromptFeatures> {
  const question = questionOf(page.store.state, page.overview);
  const key = JSON.stringify(question);
  if (asked?.key !== key) {
    const answer = page.source.features(question);
    asked = { key, answer };
    answer.catch(() => {
      if (asked?.answer === answer) asked = undefined;
    });
  }
  return asked.answer;
}

export function hasFeatures(page: Page): boolean {
  return page.overview.models.some((model) => model.features !== null);
}

// “large” “big”, or what stands for a feature without a label.
function labelText(label: ShortLabel | undefined, name: string): string {
  return label === undefined || label.text === "" ? name : label.text.replaceAll("\n", "⏎");
}

// No tokens make it fire reliably.
function unsure(label: ShortLabel | undefined): boolean {
  return label?.kind === "sometimes" || label?.kind === "mostly";
}

function promotedText(label: ShortLabel | undefined): string {
  return label === undefined ? "" : label.promotes.map((token) => token.trim() || quoted(token)).join(", ");
}

function tipOf(name: string, label: ShortLabel | undefined, firing?: Firing): string {
  const lines = [name];
  if (firing !== undefined) lines.push(`activation ${firing.value.toPrecision(3)}${label === undefined ? "" : `, at most ${label.largest.toPrecision(3)} in the text of the index`}`);
  if (label !== undefined) {
    const share = label.share === null ? "" : ` (on ${percent(label.share)} of their places)`;
    if (label.kind === "fires") lines.push(`fires on ${label.text}${share}`);
    if (label.kind === "sometimes") lines.push(`no tokens make it fire reliably; those that do so most are ${label.text}${share}`);
    if (label.kind === "mostly") lines.push(`no tokens make it fire again; most often it fires on ${label.text}`);
    lines.push(`promotes ${promotedText(label)}`, `fires on ${percent(label.fired)} of all tokens`);
  }
  return lines.join("\n");
}

function withTip<T extends HTMLElement>(element: T, text: string): T {
  element.onmousemove = (event) => showTip(text, event);
  element.onmouseleave = hideTip;
  return element;
}

function opener(page: Page, model: number, name: string, text: string, tip: string): HTMLButtonElement {
  const button = withTip(el("button", { textContent: text, attributes: { "data-feature": `${model}:${name}` } }), tip);
  button.onclick = () => {
    hideTip();
    page.store.set({ feature: `${model}:${name}` });
  };
  return button;
}

// One row for each feature that fires strongest on the chosen token, the last layer on top as in every drawing of a model.
function firesTable(page: Page, model: number, features: PromptFeatures, fired: ModelFeatures, at: number): HTMLElement {
  const layers = [...Array(fired.layers).keys()].reverse();
  const cells = new Map(layers.map((layer) => [layer, firingAt(features, fired, layer, at)]));
  const most = Math.max(1e-9, ...[...cells.values()].flat().map((firing) => Math.abs(firing.written)));
  const rows = layers.flatMap((layer) => {
    const firing = cells.get(layer) ?? [], active = fired.active[layer * features.tokens.length + at] ?? 0;
    const side = el("th", { className: "layer", rowSpan: Math.max(1, firing.length), textContent: `layer ${layer}`, title: `${active} features of this layer fire` });
    if (firing.length === 0) return [el("tr", { className: "first" }, [side, el("td", { className: "soft", colSpan: 4, textContent: "nothing fires" })])];
    return firing.map((one, i) => {
      const label = fired.labels[one.name];
      const bar = el("span", { className: "strength" });
      bar.style.width = `${(100 * Math.abs(one.written)) / most}%`;
      const open = opener(page, model, one.name, one.name, tipOf(one.name, label, one));
      open.className = "link";
      return el("tr", { className: i === 0 ? "first" : "" }, [
        ...(i === 0 ? [side] : []),
        el("td", { className: "name" }, [open]),
        withTip(el("td", { className: unsure(label) ? "unsure" : "", textContent: label?.text ?? "" }), tipOf(one.name, label, one)),
        el("td", { textContent: label === undefined ? "" : `→ ${promotedText(label)}` }),
        el("td", { className: "bar-of", title: `activation ${one.value.toPrecision(3)}` }, [bar])]);
    });
  });
  return el("table", { className: "fires" }, rows);
}

// The strongest feature of every token and layer.
function everyToken(page: Page, model: number, features: PromptFeatures, fired: ModelFeatures, at: number): HTMLElement {
  const layers = [...Array(fired.layers).keys()];
  const strongest = features.tokens.map((_, t) => layers.map((layer) => firingAt(features, fired, layer, t)[0]));
  const most = layers.map((layer) => Math.max(1e-9, ...strongest.map((row) => Math.abs(row[layer]?.written ?? 0))));
  const head = el("tr", {}, [el("th", { textContent: "#" }), el("th", { textContent: "token" }), ...layers.map((layer) => el("th", { textContent: `layer ${layer}` }))]);
  const rows = features.tokens.map((token, t) => {
    const name = el("td", { className: "token-of", textContent: token.replaceAll("\n", "⏎"), attributes: { "data-at": String(t) } });
    name.onclick = () => page.store.set({ position: t });
    return el("tr", { className: t === at ? "chosen" : "" }, [
      el("td", { className: "n", textContent: String(t) }), name,
      ...layers.map((layer) => {
        const one = strongest[t]?.[layer];
        if (one === undefined) return el("td");
        const label = fired.labels[one.name];
        const button = opener(page, model, one.name, labelText(label, one.name), tipOf(one.name, label, one));
        button.style.background = activationColor(Math.abs(one.written) / (most[layer] ?? 1));
        if (unsure(label)) button.classList.add("unsure");
        return el("td", {}, [button]);
      })]);
  });
  const table = el("table", {}, [head, ...rows]);
  table.style.minWidth = `${9 + 6.5 * fired.layers}em`;
  return el("div", { className: "every tokens" }, [table]);
}

function foundTable(page: Page, model: number, found: FoundFeatures, text: string): HTMLElement {
  const more = found.total > found.features.length ? `, the first ${found.features.length}` : "";
  const rows = found.features.map(({ feature, where, label }) => {
    const open = opener(page, model, feature, feature, tipOf(feature, label));
    open.className = "link";
    return el("tr", {}, [
      el("td", { className: "name" }, [open]), el("td", { className: unsure(label) ? "unsure" : "", textContent: label.text }),
      el("td", { textContent: `→ ${promotedText(label)}` }), el("td", { className: "layer", textContent: where === "label" ? "label" : `in ${where}` })]);
  });
  return el("div", { attributes: { "data-found": String(model) } }, [
    el("h2", { textContent: `${found.total} feature${found.total === 1 ? "" : "s"} with ${quoted(text)}${more}` }),
    el("div", { className: "every" }, [el("table", { className: "fires" }, rows)])]);
}

function say(place: HTMLElement, error: unknown): void {
  const { name, message } = error as Error;
  if (name !== "AbortError" && !message.startsWith("a newer question")) place.replaceChildren(el("p", { className: "up", textContent: message }));
}

function side(page: Page, model: number): HTMLElement {
  const info = page.overview.models[model], features = info?.features ?? null;
  const title = el("h2", { textContent: info?.label ?? "" });
  if (features === null) return el("section", {}, [title, el("p", { textContent: "No features were given for this model." })]);
  const about = page.store.state.about.trim();
  const found = el("div"), fires = el("div", {}, [el("p", { className: "soft", textContent: "Running …" })]);
  if (features.index !== null && about !== "") {
    page.source.find(model, about).then((answer) => found.replaceChildren(foundTable(page, model, answer, about)), (error: unknown) => say(found, error));
  }
  featuresOnPrompt(page).then((answer) => {
    const fired = answer.models[model];
    if (fired === undefined) return;
    const at = positionOf(page.store.state, page.run);
    fires.replaceChildren(
      everyToken(page, model, answer, fired, at),
      el("h2", { textContent: `Token ${at}, ${quoted(answer.tokens[at] ?? "")}` }),
      at === 0 ? el("p", { className: "soft", textContent: "Position 0 is left out: what fires there says nothing about the token." })
        : firesTable(page, model, answer, fired, at));
    document.body.dataset["fires"] = `${model}:${answer.prompt}`;
  }, (error: unknown) => say(fires, error));
  const kind = features.kind === "clt" ? "cross-layer" : "per-layer";
  return el("section", { attributes: { "data-side": String(model) } }, [
    title,
    el("p", { className: "soft", textContent: `${info?.layers ?? 0} layers of ${features.per_layer} ${kind} features (${features.activation}). ` + (features.index === null
      ? "They have no index: no labels, no examples and no search; `clearhead features index` makes one."
      : `Labels from ${features.index.tokens.toLocaleString("en")} tokens of text.`) }),
    found, fires]);
}

function searchBar(page: Page): HTMLElement {
  const input = el("input", { type: "text", value: page.store.state.about, placeholder: "label, token or example", attributes: { "data-about": "", "aria-label": "Find features" } });
  let waiting = 0;
  input.oninput = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => page.store.set({ about: input.value }), patience);
  };
  return el("label", {}, ["find", input]);
}

const explanation = "A feature is a direction that the MLP of a layer reads: it fires where its tokens or context occur, and then writes into this layer and those after it. " +
  "The table has the strongest of every token and layer; click one for its card. Labels are tokens that make the feature fire; in italics those that do so only sometimes. → are tokens that it promotes.";

export const featuresView: View = {
  show(place, page) {
    if (!hasFeatures(page)) {
      place.replaceChildren(el("p", { textContent: "No features were given. `clearhead serve MODEL --features DIR` shows those of a transcoder that `clearhead features train` made or another program; `clearhead features index` gives them labels." }));
      return;
    }
    const searchable = page.overview.models.some((model) => model.features !== null && model.features.index !== null);
    const active = document.activeElement, typing = active instanceof HTMLInputElement && "about" in active.dataset ? active.selectionStart : null;
    place.replaceChildren(
      el("div", { className: "bar" }, [...(searchable ? [searchBar(page)] : []), ...(page.source.live || !searchable ? [] : ["in the cards that this file holds"])]),
      el("p", { className: "soft", textContent: explanation }),
      el("div", { className: "pair" }, page.run.models.map((_, m) => side(page, m))));
    if (typing !== null) {
      const input = place.querySelector<HTMLInputElement>("[data-about]");
      input?.focus();
      input?.setSelectionRange(typing, typing);
    }
  },
};
