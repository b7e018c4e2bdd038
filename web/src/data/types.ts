// SPDX-License-Identifier: MIT
// What the server answers; docs/api.md and docs/formats.md are the reference.
export interface ModelInfo {
  label: string;
  layers: number;
  heads_per_layer: number;
  positions: number;
  parameters: number;
  attention: "softmax" | "gated";
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
