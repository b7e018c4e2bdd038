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

export interface TraceFeature {
  name: string; // L2F31
  layer: number;
  position: number;
  activation: number;
  label: string;
  promotes: string;
}

export interface FeatureGroup {
  name: string;
  position: number;
  first_layer: number;
  last_layer: number;
  features: number[]; // numbers of the trace's features
}

// The attribution graph of a prompt in one model. Sources are features, then for each position what is not shown of them, the errors, the token, the
// position embedding (where there is one), then the bias; rows are features, then logits.
export interface Trace {
  model: number;
  label: string;
  prompt: string;
  tokens: string[];
  layers: number;
  heads_per_layer: number;
  positions: boolean;
  active: number;
  traced: number;
  replacement: number;
  completeness: number;
  logits: { id: number; token: string; probability: number; value: number; position: number }[];
  features: TraceFeature[];
  groups: FeatureGroup[];
  edges: Float32Array; // [rows, sources]
  targets: Float32Array; // [rows] what the edges of a row add up to
  influence: Float32Array; // [sources]
}

// An edge split into heads: edge = direct + one hop + several hops.
export interface EdgeCarriers {
  from: string;
  to: string;
  key: number;
  query: number;
  edge: number;
  direct: number;
  one_hop: number;
  multi_hop: number;
  share: number;
  n80: number; // heads that have this share of the magnitudes
  of: number;
  heads: { head: string; value: number; share: number; all_paths: number; weight: number }[];
}

export interface StreamTerm {
  kind: string;
  name: string;
  label?: string;
}

// A head's score at (query, key) as a sum over pairs of what is at the query and at the key.
export interface HeadReasons {
  head: string;
  query: number;
  key: number;
  score: number;
  weight: number;
  raise: { query: StreamTerm; key: StreamTerm; value: number }[];
  lower: { query: StreamTerm; key: StreamTerm; value: number }[];
  rest: number;
  pairs: number;
  query_terms: (StreamTerm & { value: number })[];
  key_terms: (StreamTerm & { value: number })[];
  gate: { margin: number; turning: number } | null;
}

export interface FeatureChange {
  feature: string;
  set?: number;
  scale?: number;
  position?: number; // without one: wherever features count
}

// What is changed in one model: weights that are cut, features that are set or scaled.
export interface Changes {
  model: number;
  cut?: { head: string; query: number; key: number }[];
  features?: FeatureChange[];
}

export interface LensCell {
  likeliest: Likely[];
  target_probability: number;
  target_rank: number; // 0: the likeliest
}

export interface LogitShare {
  id: number;
  token: string;
  logit: number;
}

export interface HeadLens {
  head: string;
  target_logit: number;
  raised: LogitShare[];
  lowered: LogitShare[];
}

// What each layer of one model would predict, and each head by itself at one position.
export interface PromptLens {
  model: number;
  label: string;
  prompt: string;
  tokens: string[];
  targets: { id: number; token: string }[]; // of each position
  stream: LensCell[][]; // the embedding, then every layer; of each position
  position: number; // of the heads
  heads: HeadLens[] | null; // null: single heads of this family have no share
}

export interface ChangedRun {
  before: { loss: number | null; predictions: Prediction[] };
  after: { loss: number | null; predictions: Prediction[] };
}
