// SPDX-License-Identifier: MIT
// The page: asks for runs when the prompt or the switched-off heads change, shows the view that the address names.
import { openSource } from "./data/source";
import type { Overview, Run } from "./data/types";
import { byId, el, hideTip, percent } from "./dom";
import { positionOf, questionOf, type Page, type View } from "./page";
import { Store, formatState, ofPrompt, viewNames, type PageState, type ViewName } from "./state";
import { ablateView } from "./views/ablate";
import { circuitView } from "./views/circuit";
import { showFeature } from "./views/feature";
import { featuresView } from "./views/features";
import { gridView } from "./views/grid";
import { showHead } from "./views/head";
import { lensView } from "./views/lens";
import { predictionsView } from "./views/predictions";
import { scatterView } from "./views/scatter";
import { tokensView } from "./views/tokens";
import { traceView } from "./views/trace";

const views: Record<ViewName, View> = {
  grid: gridView, tokens: tokensView, predictions: predictionsView, ablate: ablateView, circuit: circuitView, scatter: scatterView,
  features: featuresView, trace: traceView, lens: lensView,
};

const { source, prompts } = openSource();
const store = new Store();
let overview: Overview | undefined;
let page: Page | undefined;
let before: { key: string; run: Run } | undefined; // the last run with every head on
let asked = 0;

function say(text: string, bad = false): void {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

function render(): void {
  for (const tab of byId("tabs").children) {
    tab.setAttribute("aria-selected", String((tab as HTMLElement).dataset["view"] === store.state.view));
  }
  hideTip();
  if (page !== undefined) views[store.state.view].show(byId("view"), page);
}

function fail(error: unknown): void {
  const { name, message } = error as Error;
  if (name !== "AbortError" && !message.startsWith("a newer question")) say(message, true);
}

// "32 tokens. dense: loss 2.310, all edges open. sparse: loss 2.340, 3.1 % of the edges open."
function summary(run: Run): string {
  const models = run.models.map((model) => {
    const open = model.edge_fraction === 1 ? "all edges open" : `${percent(model.edge_fraction)} of the edges open`;
    const off = model.ablated.length === 0 ? "" : `, ${model.ablated.length} head${model.ablated.length === 1 ? "" : "s"} off`;
    return `${model.label}: loss ${model.loss?.toFixed(3) ?? "–"}, ${open}${off}.`;
  });
  const maps = !source.live && run.models.some((model) => model.ablated.length > 0) ? " Maps are those with every head on." : "";
  return `${run.tokens.length} token${run.tokens.length === 1 ? "" : "s"}. ${models.join(" ")}${maps}`;
}

async function runModels(): Promise<void> {
  if (overview === undefined || store.state.prompt === "") return;
  const turn = ++asked;
  const { state } = store;
  const key = JSON.stringify([state.prompt, state.openGates]);
  const anyOff = overview.models.some((_, m) => (state.off[m] ?? []).length > 0);
  const began = performance.now();
  say("Running …");
  document.body.setAttribute("aria-busy", "true");
  try {
    if (before?.key !== key) before = { key, run: await source.run(questionOf(state, overview, false)) };
    const all = before.run;
    // What can be shown is shown, also where the run with heads off fails.
    if (turn === asked) page = { store, source, overview, run: all, before: all };
    const run = anyOff ? await source.run(questionOf(state, overview)) : all;
    if (turn !== asked) return;
    page = { store, source, overview, run, before: all };
    say(summary(run) + (source.live ? ` ${Math.round(performance.now() - began)} ms.` : ""));
    render();
    document.body.dataset["ran"] = String(turn);
    await showHead(page);
    await showFeature(page);
  } catch (error) {
    if (turn !== asked) return;
    fail(error);
    render();
  } finally {
    if (turn === asked) document.body.removeAttribute("aria-busy");
  }
}

function changed(keys: Set<keyof PageState>): void {
  byId<HTMLTextAreaElement>("prompt").value = store.state.prompt;
  byId<HTMLInputElement>("gates").checked = store.state.openGates;
  if (keys.has("prompt") || keys.has("openGates") || keys.has("off")) {
    void runModels();
    return;
  }
  if (page === undefined) return;
  // Edges are cut in a head's map and in traces; the other views do not show them.
  const large = [...keys].filter((key) => key === "head" || key === "feature" || (key === "cut" && store.state.view !== "trace"));
  if (keys.has("head") || (store.state.head !== "" && (keys.has("cut") || keys.has("position")))) showHead(page).catch(fail);
  if (keys.has("feature")) showFeature(page).catch(fail);
  if (large.length === keys.size) return;
  if (keys.has("view") || !(views[store.state.view].update?.(page, keys) ?? false)) render();
}

function addKeys(): void {
  addEventListener("keydown", (event) => {
    const target = event.target as HTMLElement;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = viewNames[Number(event.key) - 1];
    if (view !== undefined) store.set({ view });
    if (event.key === "/") {
      event.preventDefault();
      byId("prompt").focus();
    }
    if (page !== undefined && (event.key === "[" || event.key === "]")) {
      const at = positionOf(store.state, page.run) + (event.key === "[" ? -1 : 1);
      if (at >= 0 && at < page.run.tokens.length) store.set({ position: at });
    }
  });
}

function addForm(info: Overview): void {
  const prompt = byId<HTMLTextAreaElement>("prompt"), examples = byId<HTMLSelectElement>("examples");
  const gates = byId<HTMLInputElement>("gates");
  const submit = () => {
    if (prompt.value !== "") store.set({ ...ofPrompt, prompt: prompt.value });
  };
  byId("ask").onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
  prompt.onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      submit();
    }
  };
  gates.onchange = () => store.set({ openGates: gates.checked });
  byId("gates-label").hidden = !source.live || !info.models.some((model) => model.attention === "gated");
  if (prompts !== undefined) {
    prompt.readOnly = true;
    byId("run").hidden = true;
    byId("what").textContent = "A report of the prompts in the list; `clearhead serve` runs any";
    examples.append(...prompts.map((text) => el("option", { value: text, textContent: text.slice(0, 60) })));
  } else {
    examples.append(el("option", { value: "", textContent: "examples …" }), ...info.tasks.map((task) =>
      el("optgroup", { label: task.name }, task.examples.map((example) => el("option", { value: example.prompt, textContent: example.prompt.slice(-50) })))));
  }
  examples.onchange = () => {
    if (examples.value !== "") store.set({ ...ofPrompt, prompt: examples.value });
  };
}

// Arrows move between the tabs, as the role promises.
function moveTab(event: KeyboardEvent): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  const view = viewNames[viewNames.indexOf(store.state.view) + step];
  if (step === 0 || view === undefined) return;
  store.set({ view });
  byId("tabs").querySelector<HTMLElement>(`[data-view="${view}"]`)?.focus();
}

async function start(): Promise<void> {
  byId("tabs").append(...viewNames.map((name, i) => {
    const tab = el("button", { textContent: name[0]?.toUpperCase() + name.slice(1), title: `key ${i + 1}`, attributes: { role: "tab", "data-view": name } });
    tab.onclick = () => store.set({ view: name });
    return tab;
  }));
  byId("tabs").onkeydown = moveTab;
  let resized = 0;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      render();
      if (page === undefined) return;
      showHead(page).catch(fail);
      showFeature(page).catch(fail);
    }, 150);
  });
  store.listen(changed);
  addKeys();
  render();
  overview = await source.overview();
  document.title = `clearhead: ${overview.models.map((model) => model.label).join(" and ")}`;
  if (overview.models.length === 1) byId("what").textContent = "What each attention head reads in a text";
  addForm(overview);
  if (store.state.prompt === "" || (prompts !== undefined && !prompts.includes(store.state.prompt))) {
    const first = prompts?.[0] ?? overview.tasks[0]?.examples[0]?.prompt ?? "The cat sat on the mat";
    store.state = { ...store.state, prompt: first };
    history.replaceState(null, "", formatState(store.state));
  }
  changed(new Set(["prompt"]));
}

start().catch(fail);
