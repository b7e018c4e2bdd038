// SPDX-License-Identifier: MIT
// Attention edges that are cut: which, the buttons that do it, and what a model predicts without them.
import { Answers } from "../data/answers";
import { cellName, parseCell, type Cell } from "../data/trace";
import type { ChangedRun } from "../data/types";
import { el, percent, quoted, signed } from "../dom";
import { positionOf, questionOf, type Page } from "../page";
import { distribution } from "./predictions";

const runs = new Answers<ChangedRun>(100);

// "+1.50", "−0.20".
export function plus(value: number, places = 3): string {
  const text = signed(value, places);
  return value > 0 && Number(value.toFixed(places)) !== 0 ? `+${text}` : text;
}

export function cutsOf(page: Page, model: number): Cell[] {
  return (page.store.state.cut[model] ?? []).flatMap((text) => parseCell(text) ?? []);
}

// A report holds the cut of one head, and of all that make the share: there a new choice takes the old one's place.
export function setCuts(page: Page, model: number, cells: Cell[]): void {
  const cut = page.store.state.cut.map((list) => [...list]);
  cut[model] = cells.map((cell) => cellName(cell).replaceAll(" ", "."));
  page.store.set({ cut });
}

export function toggleCut(page: Page, model: number, cell: Cell): void {
  const cuts = cutsOf(page, model), name = cellName(cell), others = cuts.filter((other) => cellName(other) !== name);
  setCuts(page, model, others.length < cuts.length && (page.source.live || cuts.length === 1) ? others : page.source.live ? [...cuts, cell] : [cell]);
}

export function cutButton(page: Page, model: number, cell: Cell): HTMLButtonElement {
  const off = cutsOf(page, model).some((other) => cellName(other) === cellName(cell));
  const button = el("button", {
    textContent: off ? "restore it" : "cut it", title: `Set the weight with which ${cell.head} reads ${cell.key} from ${cell.query} to 0 and run the model`,
    attributes: { "aria-pressed": String(off), "data-cut": cellName(cell) },
  });
  button.onclick = () => toggleCut(page, model, cell);
  return button;
}

export function lossChange(run: ChangedRun): HTMLElement {
  const { before, after } = run;
  const change = before.loss !== null && after.loss !== null ? after.loss - before.loss : 0;
  return el("p", {}, [`Loss of the prompt ${before.loss?.toFixed(3) ?? "–"} → ${after.loss?.toFixed(3) ?? "–"}`,
    Math.abs(change) < 0.0005 ? " (as before)" : el("b", { className: change > 0 ? "up" : "down", textContent: ` (${plus(change)})` })]);
}

// What is expected now, at most so many tokens, and what was expected before among them; the change of the latter in words.
export function changedDistribution(run: ChangedRun, at: number, most: number): HTMLElement[] {
  const after = run.after.predictions[at], before = run.before.predictions[at], best = before?.likeliest[0];
  if (after === undefined || before === undefined || best === undefined) return [distribution(after, before)];
  const now = after.likeliest.find(({ id }) => id === best.id), shown = after.likeliest.slice(0, most);
  if (now !== undefined && !shown.includes(now)) shown.push(now);
  const words = now === undefined ? `not among the ${after.likeliest.length} likeliest` : percent(now.probability);
  return [
    el("p", { attributes: { "data-change": "" } }, [`${quoted(best.token)}: ${percent(best.probability)} → `, el("b", { className: Math.abs((now?.probability ?? 0) - best.probability) < 0.0005 ? "" : (now?.probability ?? 0) < best.probability ? "up" : "down", textContent: words })]),
    distribution({ ...after, likeliest: shown }, before)];
}

// What the model expects after the last token, without the weights that are cut.
export function cutPanel(page: Page, model: number): HTMLElement {
  const cells = cutsOf(page, model), body = el("div", { attributes: { "data-prediction": String(model) } });
  const last = page.before.tokens.length - 1, token = quoted(page.before.tokens[last] ?? "");
  if (cells.length === 0) {
    const now = page.before.models[model]?.predictions[last];
    body.append(distribution(now === undefined ? undefined : { ...now, likeliest: now.likeliest.slice(0, 5) }));
    return el("div", { attributes: { "data-outcome": "" } }, [el("h3", { textContent: `Expected after token ${last}, ${token}` }), body]);
  }
  const question = { ...questionOf(page.store.state, page.overview, false) };
  runs.into(body, JSON.stringify([model, question, cells]), () => page.source.changed(question, { model, cut: cells }), (run) => [...changedDistribution(run, last, 5), lossChange(run)]);
  const clear = el("button", { textContent: "restore all", attributes: { "data-restore": "" } });
  clear.onclick = () => setCuts(page, model, []);
  return el("div", { attributes: { "data-outcome": "" } }, [
    el("div", { className: "bar" }, [el("h3", { textContent: `Expected after token ${last}, ${token}, with ${cells.length} weight${cells.length === 1 ? "" : "s"} cut` }), clear]),
    el("p", { className: "soft", textContent: cells.map((cell) => `${cell.head} (${cell.query} reads ${cell.key})`).join(", ") }), body]);
}

// The positions whose own loss the cuts change most; a report does not hold these losses.
function lossTable(page: Page, run: ChangedRun): HTMLElement[] {
  const { tokens } = page.run;
  const changes = run.after.predictions.flatMap(({ loss }, t) => {
    const before = run.before.predictions[t]?.loss ?? null;
    return loss === null || before === null || Math.abs(loss - before) < 0.0005 ? [] : [{ t, before, loss }];
  });
  if (changes.length === 0) return [];
  changes.sort((a, b) => Math.abs(b.loss - b.before) - Math.abs(a.loss - a.before));
  return [el("table", { attributes: { "data-losses": "" } }, [
    el("tr", {}, [el("th", { textContent: "most at" }), el("th", { className: "n", textContent: "loss" }), el("th", { className: "n", textContent: "change" })]),
    ...changes.slice(0, 3).map(({ t, before, loss }) => el("tr", {}, [
      el("td", { textContent: `${quoted(tokens[t] ?? "")} (${t}) → ${quoted(tokens[t + 1] ?? "")}` }), el("td", { className: "n", textContent: `${before.toFixed(3)} → ${loss.toFixed(3)}` }),
      el("td", { className: `n ${loss > before ? "up" : "down"}`, textContent: plus(loss - before) })]))])];
}

// Below a head in large: the edges of a model that are cut, and what it predicts without them after the chosen token.
export function cutOutcome(page: Page, model: number): HTMLElement[] {
  const cells = cutsOf(page, model), { state } = page.store, at = positionOf(state, page.run);
  if (cells.length === 0) return [];
  const body = el("div", { attributes: { "data-cut-outcome": String(model) } });
  const question = questionOf(state, page.overview);
  runs.into(body, JSON.stringify([model, question, cells]), () => page.source.changed(question, { model, cut: cells }),
    (run) => [lossChange(run), ...lossTable(page, run), el("h3", { textContent: `Expected after token ${at}, ${quoted(page.run.tokens[at] ?? "")}` }), ...changedDistribution(run, at, 3)]);
  const restore = el("button", { textContent: "restore all", attributes: { "data-restore": String(model) } });
  restore.onclick = () => setCuts(page, model, []);
  const edges = cells.map((cell) => {
    const button = el("button", { className: "link", textContent: `${cell.head}:${cell.query}<-${cell.key}`, title: "Restore this edge", attributes: { "data-cut": cellName(cell) } });
    button.onclick = () => toggleCut(page, model, cell);
    return button;
  });
  return [el("div", { className: "cut" }, [
    el("div", { className: "bar" }, [el("h2", { textContent: `${page.run.models[model]?.label ?? ""} without ${cells.length} edge${cells.length === 1 ? "" : "s"}` }), restore]),
    el("p", { className: "soft" }, edges.flatMap((edge, i) => (i === 0 ? [edge] : [", ", edge]))), body])];
}
