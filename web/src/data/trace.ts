// SPDX-License-Identifier: MIT
// The attribution graph of a prompt out of a frame, and the graph of groups in it: edges of groups are sums of edges.
import { Answers } from "./answers";
import type { Frame } from "./frame";
import type { EdgeCarriers, HeadReasons, Prediction, Trace } from "./types";

export function traceOf(frame: Frame): Trace {
  const array = (name: string) => frame.array(name) ?? new Float32Array();
  return { ...(frame.header as unknown as Trace), edges: array("edges"), targets: array("targets"), influence: array("influence") };
}

// The traces that were asked for last, and how their keys are made.
export const traces = new Answers<Trace>(4);

export function traceKey(model: number, prompt: string): string {
  return JSON.stringify([model, prompt]);
}

// How strongly a feature fires at each token, as far as the graph has it.
export function activationsIn(trace: Trace | undefined, name: string): number[] {
  const values = Array<number>(trace?.tokens.length ?? 0).fill(0);
  for (const feature of trace?.features ?? []) if (feature.name === name) values[feature.position] = feature.activation;
  return values;
}

export type NodeKind = "group" | "feature" | "token" | "position" | "errors" | "others" | "logit";

export interface TraceNode {
  id: string; // as the server calls it: "group 3", "L2F31@5", "token@5", "logit 0"
  kind: NodeKind;
  title: string;
  position: number;
  first: number; // layers; of tokens −1, of logits the number of layers
  last: number;
  features: number[];
  group: number; // the group that it is or is a part of, or −1
  influence: number; // of logits their probability
}

export interface TraceEdge {
  from: TraceNode;
  to: TraceNode;
  value: number;
  strength: number; // share of all that makes the target, times the target's influence
}

export interface TraceGraph {
  nodes: TraceNode[];
  edges: TraceEdge[]; // strongest first
}

const loose = ["others", "errors", "token", "position"] as const; // the order of their columns

const looseTitles: Record<(typeof loose)[number], string> = {
  others: "other features", errors: "errors (what the features do not explain)", token: "token", position: "position",
};

// Groups whose number is in `expanded` are taken apart into their features.
export function graphOf(trace: Trace, expanded: ReadonlySet<number>): TraceGraph {
  const F = trace.features.length, T = trace.tokens.length;
  const kinds = trace.positions ? loose : loose.slice(0, 3);
  const sources = F + kinds.length * T + 1, bias = sources - 1;
  const nodes: TraceNode[] = [];
  const columns = new Int32Array(sources).fill(-1); // node of each source
  const influence = (indices: number[]) => indices.reduce((sum, i) => sum + (trace.influence[i] ?? 0), 0);
  const add = (node: TraceNode, ofNode: number[]) => {
    for (const i of ofNode) columns[i] = nodes.length;
    nodes.push(node);
  };
  trace.groups.forEach((group, g) => {
    const parts = expanded.has(g) ? group.features.map((f) => [f]) : [group.features];
    for (const features of parts) {
      const one = features.length === 1 && expanded.has(g) ? trace.features[features[0] ?? 0] : undefined;
      add({
        id: one === undefined ? `group ${g}` : `${one.name}@${one.position}`, kind: one === undefined ? "group" : "feature",
        title: one === undefined ? group.name : one.name, position: group.position,
        first: one?.layer ?? group.first_layer, last: one?.layer ?? group.last_layer, features, group: g, influence: influence(features),
      }, features);
    }
  });
  kinds.forEach((kind, k) => {
    for (let p = 0; p < T; ++p) {
      const column = F + k * T + p;
      add({ id: `${kind}@${p}`, kind, title: kind === "token" ? trace.tokens[p] ?? "" : looseTitles[kind], position: p, first: -1, last: -1, features: [], group: -1, influence: influence([column]) }, [column]);
    }
  });
  const edges: TraceEdge[] = [];
  const row = (to: TraceNode, rows: number[], weight: number) => {
    const values = new Float64Array(nodes.length + 1);
    for (const r of rows) {
      for (let j = 0; j < sources; ++j) {
        const node = j === bias ? nodes.length : columns[j] ?? nodes.length;
        values[node < 0 ? nodes.length : node] = (values[node < 0 ? nodes.length : node] ?? 0) + (trace.edges[r * sources + j] ?? 0);
      }
    }
    const sum = values.reduce((all, value) => all + Math.abs(value), 0);
    nodes.forEach((from, n) => {
      const value = values[n] ?? 0;
      if (from !== to && value !== 0) edges.push({ from, to, value, strength: (weight * Math.abs(value)) / sum });
    });
  };
  for (const node of nodes.filter(({ kind }) => kind === "group" || kind === "feature")) row(node, node.features, node.influence);
  const logits = trace.logits.map((logit, i): TraceNode => ({
    id: `logit ${i}`, kind: "logit", title: logit.token, position: logit.position, first: trace.layers, last: trace.layers, features: [], group: -1, influence: logit.probability,
  }));
  for (const [i, node] of logits.entries()) row(node, [F + i], node.influence);
  edges.sort((a, b) => b.strength - a.strength);
  return { nodes: [...nodes, ...logits], edges };
}

export function edgeOf(graph: TraceGraph, from: string, to: string): TraceEdge | undefined {
  return graph.edges.find((edge) => edge.from.id === from && edge.to.id === to);
}

// A cell of a head's map, as reports name it.
export interface Cell {
  head: string;
  query: number;
  key: number;
}

export function cellName({ head, query, key }: Cell): string {
  return `${head} ${query} ${key}`;
}

export function parseCell(text: string): Cell | undefined {
  const match = /^(L\d+H\d+)[ .](\d+)[ .](\d+)$/.exec(text);
  return match === null ? undefined : { head: match[1] ?? "", query: Number(match[2]), key: Number(match[3]) };
}

// What a report holds beside the graph.
export interface TraceDetails {
  model: number;
  prompt: string;
  before: { loss: number | null; last: Prediction };
  carriers: Record<string, EdgeCarriers>;
  reasons: Record<string, HeadReasons>;
  cuts: Record<string, { loss: number | null; last: Prediction }>;
}
