// SPDX-License-Identifier: MIT
// What the server answers; docs/api.md and docs/formats.md are the reference.
export interface ModelInfo {
  label: string;
  layers: number;
  heads_per_layer: number;
  positions: number;
  parameters: number;
  attention: "softmax" | "gated";
  features: FeaturesInfo | null;
}

// The features that were given for a model; without an index they have no labels and no examples.
export interface FeaturesInfo {
  kind: string;
  activation: string;
  per_layer: number;
  index: { tokens: number } | null;
}

export interface TaskInfo {
  name: string;
  description: string;
  examples: { prompt: string; answers: string[] }[];
}

export interface Overview {
  models: ModelInfo[];
  longest: number;
  tasks: TaskInfo[];
  results: { name: string; schema: string }[];
}

export interface HeadInfo {
  head: string;
  name: string;
  kind: string;
  score: number;
  margin: number;
  sentence: string;
  mass: number;
  self: number;
  previous: number;
  first: number;
  mean_peak: number;
  importance: number;
  effective_keys: number;
  open_edges_per_query: number;
  edge_fraction: number;
}

export interface Likely {
  id: number;
  token: string;
  probability: number;
}

export interface Prediction {
  loss: number | null;
  likeliest: Likely[];
}

export interface ModelRun {
  label: string;
  ablated: string[];
  loss: number | null;
  open_edges_per_query: number;
  edge_fraction: number;
  predictions: Prediction[];
  heads: HeadInfo[];
}

export interface Run {
  prompt: string;
  tokens: string[];
  tokensPerCell: number;
  cells: number;
  models: ModelRun[];
  maps: Float32Array[]; // of each model: [L,H,cells,cells]
}

// Runs with heads switched off that a report holds: predictions of each set of heads, without maps.
export interface Ablations {
  prompt: string;
  positions: number; // P: the last ones, where the likeliest tokens are known
  tokens: Record<string, string>;
  models: {
    sets: string[][];
    losses: Float32Array; // [S,T-1]
    ids: Float32Array; // [S,P,K]
    probabilities: Float32Array; // [S,P,K]
  }[];
}

export interface Question {
  prompt: string;
  ablate: string[][];
  open_gates: boolean;
}

// Of each model, layer by layer.
export interface TokenRows {
  reads: Float32Array[]; // [L,H,T]
  readBy: Float32Array[];
}

export type LabelKind = "none" | "fires" | "sometimes" | "mostly";

// What is written beside a feature's name.
export interface ShortLabel {
  text: string;
  kind: LabelKind;
  share: number | null; // of the places of its label on which it fired
  largest: number;
  fired: number; // share of all tokens
  promotes: string[];
}

export interface ModelFeatures {
  layers: number;
  labels: Record<string, ShortLabel>;
  active: Float32Array; // [L,T] how many fire
  feature: Float32Array; // [L,T,K] the strongest; -1: no more
  value: Float32Array; // [L,T,K]
  written: Float32Array; // [L,T,K] value times the norm of what it writes
}

export interface PromptFeatures {
  prompt: string;
  tokens: string[];
  strongest: number; // K
  models: (ModelFeatures | undefined)[];
}

export interface TokenScore {
  id: number;
  token: string;
  score: number;
}

export interface FeatureExample {
  group: string;
  peak: number;
  tokens: string[];
  activations: number[];
}

export interface FeatureCard {
  feature: string;
  layer: number;
  label: { text: string; kind: LabelKind; share: number | null; patterns: { text: string; embedding: boolean; fired: number; seen: number }[] } | null;
  fired?: number;
  tokens?: number;
  share?: number | null;
  mean?: number;
  largest?: number;
  histogram?: { width: number; counts: number[] };
  promoted: TokenScore[];
  suppressed: TokenScore[];
  exciting: TokenScore[];
  writes: { layer: number; norm: number }[];
  examples?: FeatureExample[];
}

export interface FoundFeatures {
  total: number;
  features: { feature: string; where: string; label: ShortLabel }[];
}
