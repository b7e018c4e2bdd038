// SPDX-License-Identifier: MIT
// What fires on a prompt out of a frame, and the search in a report, where no server looks.
import type { Frame } from "./frame";
import type { FeatureCard, FoundFeatures, ModelFeatures, PromptFeatures, ShortLabel } from "./types";

export interface Cards {
  model: number;
  cards: Record<string, FeatureCard>;
}

export function featuresOf(frame: Frame): PromptFeatures {
  const header = frame.header as unknown as {
    prompt: string; tokens: string[]; strongest: number; models: ({ layers: number; labels: Record<string, ShortLabel> } | null)[];
  };
  return {
    prompt: header.prompt, tokens: header.tokens, strongest: header.strongest,
    models: header.models.map((model, m): ModelFeatures | undefined => {
      const array = (name: string) => frame.array(`${name}.${m}`) ?? new Float32Array();
      return model === null ? undefined
        : { ...model, active: array("active"), feature: array("feature"), value: array("value"), written: array("written") };
    }),
  };
}

export interface Firing {
  name: string; // L3F512
  value: number;
  written: number;
}

// The strongest features of one token in one layer.
export function firingAt(features: PromptFeatures, model: ModelFeatures, layer: number, at: number): Firing[] {
  const start = (layer * features.tokens.length + at) * features.strongest;
  const firing: Firing[] = [];
  for (let i = start; i < start + features.strongest; ++i) {
    const feature = model.feature[i] ?? -1;
    if (feature < 0) break;
    firing.push({ name: `L${layer}F${feature}`, value: model.value[i] ?? 0, written: model.written[i] ?? 0 });
  }
  return firing;
}

function shortLabel(card: FeatureCard): ShortLabel {
  return {
    text: card.label?.text ?? "", kind: card.label?.kind ?? "none", share: card.label?.share ?? null, largest: card.largest ?? 0,
    fired: card.share ?? 0, promotes: card.promoted.slice(0, 3).map((score) => score.token),
  };
}

// The same order as the server's: labels, promoted tokens, exciting tokens, examples.
export function searchCards(cards: Record<string, FeatureCard>, text: string): FoundFeatures {
  const needle = text.trim().toLowerCase();
  const has = (texts: string[]) => texts.some((candidate) => candidate.toLowerCase().includes(needle));
  const places = ["label", "promoted", "exciting", "example"];
  const whereIs = (card: FeatureCard): number => {
    if (has((card.label?.patterns ?? []).map((pattern) => pattern.text))) return 0;
    if (has(card.promoted.map((score) => score.token))) return 1;
    if (has(card.exciting.map((score) => score.token))) return 2;
    return has((card.examples ?? []).map((example) => example.tokens.join(""))) ? 3 : -1;
  };
  const found = needle === "" ? [] : Object.values(cards).map((card) => ({ card, where: whereIs(card) })).filter(({ where }) => where >= 0);
  found.sort((a, b) => a.where - b.where || (b.card.fired ?? 0) - (a.card.fired ?? 0));
  return { total: found.length, features: found.slice(0, 40).map(({ card, where }) => ({ feature: card.feature, where: places[where] ?? "", label: shortLabel(card) })) };
}
