// SPDX-License-Identifier: MIT
// The logit lens: what each layer of a model would predict at every position, and what each head says by itself after the chosen token.
import { Answers } from "../data/answers";
import type { HeadLens, LensCell, LogitShare, PromptLens } from "../data/types";
import { el, hideTip, percent, quoted, showTip } from "../dom";
import { inkOn } from "../draw/ink";
import { weightColor } from "../draw/map";
import { positionOf, questionOf, type Page, type View } from "../page";
import { plus } from "./cuts";

const lenses = new Answers<PromptLens>(12);
const listed = 12; // heads of the table

const visible = (token: string) => token.replaceAll("\n", "⏎").replaceAll(" ", "·");

function pointName(point: number): string {
  return point === 0 ? "embedding" : `layer ${point - 1}`;
}

function tipOf(lens: PromptLens, point: number, at: number, cell: LensCell): string {
  const rank = cell.target_rank === 0 ? "the likeliest" : `${cell.target_rank} before it`;
  return [`${pointName(point)}, after ${quoted(lens.tokens[at] ?? "")} (${at})`,
    ...cell.likeliest.map(({ token, probability }) => `${quoted(token)} ${percent(probability)}`),
    `towards ${quoted(lens.targets[at]?.token ?? "")}: ${percent(cell.target_probability)}, ${rank}`].join("\n");
}

// A row for each layer, the last on top as in every drawing of a model; a frame where the cell says what is followed.
function streamTable(page: Page, lens: PromptLens, at: number): HTMLElement {
  const chosen = (t: number) => (t === at ? "chosen" : "");
  const points = [...lens.stream.keys()].reverse();
  const rows = points.map((point) => el("tr", {}, [
    el("th", { className: "layer", textContent: pointName(point) }),
    ...lens.tokens.map((_, t) => {
      const cell = lens.stream[point]?.[t], best = cell?.likeliest[0];
      if (cell === undefined || best === undefined) return el("td");
      const button = el("button", { textContent: visible(best.token), className: best.id === lens.targets[t]?.id ? "target" : "", attributes: { "data-cell": `${point} ${t}` } });
      button.style.background = weightColor(best.probability);
      button.style.color = inkOn(weightColor(best.probability));
      button.onclick = () => page.store.set({ position: t });
      button.onmousemove = (event) => showTip(tipOf(lens, point, t, cell), event);
      button.onmouseleave = hideTip;
      return el("td", { className: chosen(t) }, [button]);
    })]));
  const tokens = el("tr", {}, [el("th", { className: "layer", textContent: "token" }), ...lens.tokens.map((token, t) => el("th", { className: chosen(t), textContent: visible(token) }))]);
  return el("div", { className: "wide" }, [el("table", { className: "lens", attributes: { "data-lens": String(lens.model) } }, [...rows, tokens])]);
}

function shares(list: LogitShare[]): HTMLElement {
  return el("td", {}, list.slice(0, 3).flatMap(({ token, logit }) => [el("span", { textContent: `${quoted(token)} ${plus(logit, 2)}` }), " "]));
}

function headsTable(page: Page, lens: PromptLens, heads: HeadLens[]): HTMLElement {
  const order = [...heads].sort((a, b) => Math.abs(b.target_logit) - Math.abs(a.target_logit)).slice(0, listed);
  const most = Math.max(1e-12, ...order.map(({ target_logit }) => Math.abs(target_logit)));
  const rows = order.map((head) => {
    const bar = el("i", { className: head.target_logit < 0 ? "against" : "" });
    bar.style.width = `${(100 * Math.abs(head.target_logit)) / most}%`;
    const open = el("button", { className: "link", textContent: head.head, attributes: { "data-lens-head": head.head } });
    open.onclick = () => page.store.set({ head: head.head });
    return el("tr", { attributes: { "data-share": String(head.target_logit) } }, [
      el("td", {}, [open]), el("td", { className: "barcell" }, [bar, el("span", { textContent: plus(head.target_logit, 2) })]),
      shares(head.raised), shares(head.lowered)]);
  });
  const target = quoted(lens.targets[lens.position]?.token ?? "");
  const title = el("tr", {}, ["head", `on ${target}`, "raises most", "lowers most"].map((text) => el("th", { textContent: text })));
  return el("table", { className: "lens-heads", attributes: { "data-lens-heads": String(lens.model) } }, [title, ...rows]);
}

function headsOf(page: Page, lens: PromptLens, at: number): HTMLElement[] {
  const place = `after token ${lens.position}, ${quoted(lens.tokens[lens.position] ?? "")}`;
  if (lens.heads === null) return [el("p", { className: "soft", textContent: "This family normalises what its heads give together: single heads have no share of the logits." })];
  return [
    el("h3", { textContent: `What single heads say ${place}` }),
    ...(lens.position === at ? [] : [el("p", { className: "soft", textContent: "This file holds the heads after the last token only; `clearhead serve` has them after any." })]),
    el("div", { className: "wide" }, [headsTable(page, lens, lens.heads)])];
}

function side(page: Page, model: number): HTMLElement {
  const { state } = page.store, at = positionOf(state, page.run), body = el("div");
  const question = questionOf(state, page.overview);
  lenses.into(body, JSON.stringify([model, question, at, state.towards]), () => page.source.lens(question, model, at, state.towards),
    (lens) => [streamTable(page, lens, at), ...headsOf(page, lens, at)]);
  return el("section", {}, [el("h2", { textContent: page.overview.models[model]?.label ?? "" }), body]);
}

export const lensView: View = {
  show(place, page) {
    const towards = el("input", { type: "text", value: page.store.state.towards, placeholder: "e.g. “ the”", attributes: { "data-towards": "" } });
    towards.onchange = () => page.store.set({ towards: towards.value });
    const follow = page.source.live ? [el("div", { className: "bar" }, [el("label", {}, ["follow the token", towards]), "empty: what the model itself says at each position"])] : [];
    place.replaceChildren(
      el("p", { textContent: "What each layer would predict if the model ended there: the stream through the final norm and the output matrix. The bluer, the surer; framed where it is the token that is followed. " +
        "Click a column to see what single heads add to the logits there." }),
      ...follow, el("div", { className: "pair lenses" }, page.overview.models.map((_, m) => side(page, m))));
  },
};
