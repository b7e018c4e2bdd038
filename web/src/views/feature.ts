// SPDX-License-Identifier: MIT
// One feature's card: what makes it fire, examples, what it promotes, where it writes.
import * as d3 from "d3";
import { firingAt } from "../data/features";
import { activationsIn, traceKey, traces } from "../data/trace";
import type { FeatureCard, FeatureChange, FeatureExample, TokenScore } from "../data/types";
import { byId, drawn, el, hideTip, percent, quoted, selectOf, showTip, signed } from "../dom";
import { positionOf, questionOf, type Page } from "../page";
import { changedDistribution, lossChange } from "./cuts";
import { featuresOnPrompt } from "./features";

// White is 0, orange is 1; black text can be read on all of it.
export function activationColor(share: number): string {
  return d3.interpolateRgb("#ffffff", "#f59e3c")(Math.min(1, Math.max(0, share)));
}

function tokenSpan(token: string, activation: number, largest: number, peak: boolean): HTMLElement {
  const span = el(peak ? "b" : "span", { textContent: token.replaceAll("\n", "⏎").replaceAll("\t", "⇥") });
  if (activation !== 0) {
    span.style.background = activationColor(0.15 + (0.85 * activation) / largest);
    span.onmousemove = (event) => showTip(`${quoted(token)} ${activation.toPrecision(3)}`, event);
    span.onmouseleave = hideTip;
  }
  return span;
}

// The peak stands in one column in all examples; what does not fit is cut at both ends.
function exampleRow(example: FeatureExample, largest: number): HTMLElement {
  const spans = example.tokens.map((token, i) => tokenSpan(token, example.activations[i] ?? 0, largest, i === example.peak));
  const before = el("span", {}, [el("span", {}, spans.slice(0, example.peak))]);
  return el("div", { className: "example" }, [
    before, el("span", { className: "peak" }, spans.slice(example.peak, example.peak + 1)),
    el("span", {}, [el("span", {}, spans.slice(example.peak + 1))])]);
}

function examples(card: FeatureCard): HTMLElement {
  const place = el("div", { attributes: { "data-examples": "" } });
  let group = "";
  const titles: Record<string, string> = {
    top: "Strongest", "upper third": "From the upper third of all its places", "middle third": "From the middle third", "lower third": "From the lower third",
  };
  for (const example of card.examples ?? []) {
    if (example.group !== group) place.append(el("h3", { textContent: titles[example.group] ?? example.group }));
    group = example.group;
    place.append(exampleRow(example, card.largest ?? 1));
  }
  return place;
}

function histogram(card: FeatureCard): SVGSVGElement | null {
  const { width: step, counts } = card.histogram ?? { width: 0, counts: [] };
  const largest = card.largest ?? 0, used = Math.max(1, Math.ceil(largest / step));
  if (!(step > 0) || !(largest > 0)) return null;
  const width = 340, height = 110, left = 40, bottom = 22;
  const x = d3.scaleLinear([0, used * step], [left, width - 8]);
  const y = d3.scaleLinear([0, d3.max(counts) ?? 1], [height - bottom, 6]);
  const svg = d3.create("svg").attr("width", width).attr("height", height).attr("role", "img").attr("aria-label", "Histogram of activations");
  svg.append("g").attr("transform", `translate(0,${height - bottom})`).call(d3.axisBottom(x).ticks(5));
  svg.append("g").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(3, "~s"));
  svg.append("g").selectAll("rect").data(counts.slice(0, used)).join("rect")
    .attr("x", (_, i) => x(i * step) + 0.5).attr("width", Math.max(1, x(step) - x(0) - 1)).attr("y", (count) => y(count)).attr("height", (count) => y(0) - y(count))
    .attr("fill", "#f59e3c")
    .on("mousemove", (event: MouseEvent, count) => showTip(`${count} tokens`, event)).on("mouseleave", hideTip);
  return svg.node();
}

function tokenTable(title: string, scores: TokenScore[], kind: string): HTMLElement {
  const most = Math.max(1e-9, ...scores.map((score) => Math.abs(score.score)));
  return el("div", { className: kind }, [el("h3", { textContent: title }), el("table", {}, scores.map((score) => {
    const bar = el("i");
    bar.style.width = `${(100 * Math.abs(score.score)) / most}%`;
    return el("tr", {}, [el("td", { className: "barcell" }, [bar, el("span", { textContent: quoted(score.token) })]), el("td", { className: "n", textContent: signed(score.score, 2) })]);
  }))]);
}

function writesTable(card: FeatureCard): HTMLElement {
  const most = Math.max(1e-9, ...card.writes.map((write) => write.norm));
  return el("div", {}, [el("h3", { textContent: "Writes into (norm)" }), el("table", {}, card.writes.map((write) => {
    const bar = el("i");
    bar.style.width = `${(100 * write.norm) / most}%`;
    return el("tr", {}, [el("td", { className: "barcell" }, [bar, el("span", { textContent: `layer ${write.layer}` })]), el("td", { className: "n", textContent: write.norm.toPrecision(3) })]);
  }))]);
}

function sentence(card: FeatureCard): (Node | string)[] {
  const { label } = card;
  if (label === null) return ["These features have no index: what stands here is from the weights alone. `clearhead features index` adds label and examples."];
  if (label.kind === "none") return ["It never fired on the text of the index."];
  const bold = el("b", { textContent: label.text });
  const share = label.share === null ? ", which the judging half of the text did not have" : ` (on ${percent(label.share)} of ${label.patterns.reduce((sum, pattern) => sum + pattern.seen, 0)} places)`;
  if (label.kind === "fires") return ["Fires at the end of ", bold, `${share}.`];
  return label.kind === "sometimes" ? ["No tokens make it fire reliably. Those that do so most are ", bold, `${share}.`] : ["No tokens make it fire again. Most often it fires on ", bold, `${share}.`];
}

// How strongly the feature fires at each token of the prompt at hand, where it is among the strongest.
async function valuesOnPrompt(page: Page, model: number, card: FeatureCard): Promise<{ tokens: string[]; values: number[] }> {
  const features = await featuresOnPrompt(page), fired = features.models[model];
  if (fired === undefined) return { tokens: [], values: [] };
  const traced = page.run === page.before ? activationsIn(traces.get(traceKey(model, page.store.state.prompt)), card.feature) : [];
  return { tokens: features.tokens, values: features.tokens.map((_, t) => firingAt(features, fired, card.layer, t).find((one) => one.name === card.feature)?.value ?? traced[t] ?? 0) };
}

function onPrompt(card: FeatureCard, tokens: string[], values: number[]): (Node | string)[] {
  if (tokens.length === 0) return [];
  const largest = card.largest ?? Math.max(...values);
  if (values.every((value) => value === 0)) return [el("p", { className: "soft", textContent: "On this prompt it is nowhere among the strongest." })];
  return [el("h3", { textContent: "On this prompt, where it is among the strongest" }),
    el("div", { className: "text" }, tokens.map((token, t) => tokenSpan(token, values[t] ?? 0, largest, false)))];
}

const changes: [string, string][] = [["off", "off"], ["twice", "twice as strong"], ["times", "times"], ["set", "set to"]];

// The feature switched off, scaled or set, at one token or everywhere, and what the model then predicts.
function changePanel(page: Page, model: number, name: string, tokens: string[], values: number[]): HTMLElement {
  const place = el("div", { className: "change" }, [el("h3", { textContent: "Change it and see what the model predicts" })]);
  if (!page.source.live) {
    place.append(el("p", { className: "soft", textContent: "This needs the model: `clearhead serve` runs it." }));
    return place;
  }
  const strongest = values.indexOf(Math.max(0.0, ...values)), result = el("div", { attributes: { "data-changed": "" } });
  let how = "off", where = strongest > 0 ? String(strongest) : "";
  const amount = el("input", { type: "number", step: "any", value: String(Number(((values[strongest] ?? 0) || 1).toPrecision(3))), hidden: true, attributes: { "aria-label": "Value", "data-amount": "" } });
  const places: [string, string][] = [["", "everywhere"], ...tokens.slice(1).map((token, i): [string, string] => [String(i + 1), `at ${i + 1}, ${quoted(token)}${(values[i + 1] ?? 0) > 0 ? ` (${(values[i + 1] ?? 0).toPrecision(3)})` : ""}`])];
  const run = el("button", { textContent: "Run", attributes: { "data-run-change": "" } });
  run.onclick = () => {
    const value = Number(amount.value), at = positionOf(page.store.state, page.run);
    const change: FeatureChange = { feature: name, ...(how === "set" ? { set: value } : { scale: how === "off" ? 0 : how === "twice" ? 2 : value }), ...(where === "" ? {} : { position: Number(where) }) };
    result.replaceChildren(el("p", { className: "soft", textContent: "Running …" }));
    page.source.changed(questionOf(page.store.state, page.overview), { model, features: [change] }).then(
      (changed) => result.replaceChildren(el("h3", { textContent: `Expected after token ${at}, ${quoted(page.run.tokens[at] ?? "")}` }), ...changedDistribution(changed, at, 5), lossChange(changed)),
      (error: Error) => result.replaceChildren(el("p", { className: "up", textContent: error.message })));
  };
  place.append(el("div", { className: "bar" }, [
    selectOf("", how, changes, (value) => {
      how = value;
      amount.hidden = how !== "times" && how !== "set";
    }),
    amount, selectOf("", where, places, (value) => {
      where = value;
    }), run]), result);
  return place;
}

export async function showFeature(page: Page): Promise<void> {
  const { store } = page;
  const dialog = byId<HTMLDialogElement>("feature");
  const open = /^(\d):(L\d+F\d+)$/.exec(store.state.feature);
  if (open === null) {
    if (dialog.open) dialog.close();
    return;
  }
  const model = Number(open[1]), name = open[2] ?? "";
  const label = page.overview.models[model]?.label ?? "";
  const close = el("button", { textContent: "Close" });
  close.onclick = () => store.set({ feature: "" });
  const title = el("div", { className: "bar" }, [el("h2", { className: "head-name", textContent: `Feature ${name} of ${label}` }), close, el("kbd", { textContent: "Esc" })]);
  dialog.oncancel = (event) => {
    event.preventDefault();
    store.set({ feature: "" });
  };
  const present = (children: (Node | string)[]) => {
    dialog.replaceChildren(title, ...children);
    if (!dialog.open) dialog.showModal();
    dialog.focus();
  };
  let card: FeatureCard, prompt: { tokens: string[]; values: number[] };
  try {
    card = await page.source.feature(model, name);
    prompt = await valuesOnPrompt(page, model, card).catch(() => ({ tokens: [], values: [] }));
  } catch (error) {
    if ((error as Error).name === "AbortError" || store.state.feature !== open[0]) return;
    return present([el("p", { textContent: (error as Error).message })]);
  }
  if (store.state.feature !== open[0]) return; // another one was opened meanwhile
  const numbers = card.fired === undefined ? [] : [el("p", { className: "soft",
    textContent: `Fires on ${percent(card.share ?? 0)} of ${(card.tokens ?? 0).toLocaleString("en")} tokens, with ${(card.mean ?? 0).toPrecision(3)} on average and ${(card.largest ?? 0).toPrecision(3)} at most.` })];
  present([
    el("p", { className: "sentence" }, sentence(card)),
    el("div", { className: "feature-card" }, [
      el("div", {}, [...onPrompt(card, prompt.tokens, prompt.values), changePanel(page, model, name, page.run.tokens, prompt.values), examples(card)]),
      el("div", {}, [
        ...numbers, ...drawn(histogram(card)),
        el("div", { className: "lists" }, [
          tokenTable("Promotes", card.promoted, "promotes"), tokenTable("Suppresses", card.suppressed, "suppresses"),
          tokenTable("Excited by", card.exciting, "excites"), writesTable(card)])])])]);
}
