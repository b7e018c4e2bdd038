// SPDX-License-Identifier: MIT
// Where answers come from: the server, or the file that the page is in.
import { parseFrame, type Frame } from "./frame";
import { featuresOf, searchCards, type Cards } from "./features";
import { cellName, traceOf, type TraceDetails } from "./trace";
import type {
  Ablations, ChangedRun, Changes, EdgeCarriers, FeatureCard, FoundFeatures, HeadReasons, ModelRun, Overview, Prediction, PromptFeatures, PromptLens, Question, Run, TokenRows, Trace,
} from "./types";

export interface Source {
  readonly live: boolean; // whether any prompt, and any set of heads switched off, can be run
  overview(): Promise<Overview>;
  run(question: Question): Promise<Run>;
  head(question: Question, run: Run, head: string): Promise<(Float32Array | undefined)[]>;
  token(question: Question, run: Run, position: number): Promise<TokenRows>;
  result(index: number): Promise<Record<string, unknown>>;
  features(question: Question): Promise<PromptFeatures>;
  feature(model: number, name: string): Promise<FeatureCard>;
  find(model: number, text: string): Promise<FoundFeatures>;
  trace(model: number, prompt: string): Promise<Trace>;
  carriers(model: number, prompt: string, from: string, to: string): Promise<EdgeCarriers>;
  reasons(model: number, prompt: string, head: string, query: number, key: number): Promise<HeadReasons>;
  changed(question: Question, changes: Changes): Promise<ChangedRun>;
  lens(question: Question, model: number, position: number, target: string): Promise<PromptLens>;
}

export function runOf(frame: Frame): Run {
  const header = frame.header as unknown as { prompt: string; tokens: string[]; tokens_per_cell: number; models: ModelRun[] };
  const cells = Math.ceil(header.tokens.length / header.tokens_per_cell);
  return {
    prompt: header.prompt,
    tokens: header.tokens,
    tokensPerCell: header.tokens_per_cell,
    cells,
    models: header.models,
    maps: header.models.map((_, m) => frame.array(`maps.${m}`) ?? new Float32Array()),
  };
}

// One head's map out of a run, reduced if the run is.
export function mapOf(run: Run, model: number, index: number): Float32Array {
  const size = run.cells * run.cells;
  return (run.maps[model] ?? new Float32Array()).subarray(index * size, (index + 1) * size);
}

export function headIndex(run: Run, model: number, head: string): number {
  return run.models[model]?.heads.findIndex((info) => info.head === head) ?? -1;
}

// A head's weights over all tokens, [T,T]. Where the run is reduced, a token has its cell's weight.
function wholeMap(run: Run, model: number, index: number): Float32Array {
  const map = mapOf(run, model, index), per = run.tokensPerCell, T = run.tokens.length;
  if (per === 1) return map;
  const whole = new Float32Array(T * T);
  for (let i = 0; i < T; ++i) {
    for (let j = 0; j <= i; ++j) whole[i * T + j] = map[Math.floor(i / per) * run.cells + Math.floor(j / per)] ?? 0;
  }
  return whole;
}

function rowsFromMaps(run: Run, position: number): TokenRows {
  const T = run.tokens.length, n = run.cells, cell = (i: number) => Math.floor(i / run.tokensPerCell);
  const rows: TokenRows = { reads: [], readBy: [] };
  run.maps.forEach((maps) => {
    const heads = maps.length / (n * n);
    const reads = new Float32Array(heads * T), readBy = new Float32Array(heads * T);
    for (let h = 0; h < heads; ++h) {
      for (let i = 0; i < T; ++i) {
        if (i <= position) reads[h * T + i] = maps[(h * n + cell(position)) * n + cell(i)] ?? 0;
        if (i >= position) readBy[h * T + i] = maps[(h * n + cell(i)) * n + cell(position)] ?? 0;
      }
    }
    rows.reads.push(reads);
    rows.readBy.push(readBy);
  });
  return rows;
}

function headFromMaps(run: Run, head: string): (Float32Array | undefined)[] {
  return run.models.map((_, m) => {
    const index = headIndex(run, m, head);
    return index < 0 ? undefined : wholeMap(run, m, index);
  });
}

// A newer question of the same kind stops the older one here and, by its number, in the server.
class LiveSource implements Source {
  readonly live = true;
  private readonly client = crypto.getRandomValues(new Uint32Array(3)).join("-");
  private number = 0;
  private readonly running = new Map<string, AbortController>();
  private readonly results = new Map<number, Promise<Record<string, unknown>>>(); // they never change

  async overview(): Promise<Overview> {
    return (await (await this.fetch("/api/overview", {})).json()) as Overview;
  }

  async result(index: number): Promise<Record<string, unknown>> {
    const known = this.results.get(index);
    if (known !== undefined) return known;
    const asked = this.fetch(`/api/results/${index}`, {}).then((answer) => answer.json() as Promise<Record<string, unknown>>);
    this.results.set(index, asked);
    asked.catch(() => this.results.delete(index));
    return asked;
  }

  // Whatever is still asked was about an older prompt or other heads: nobody waits for it any more.
  async run(question: Question): Promise<Run> {
    for (const control of this.running.values()) control.abort();
    return runOf(await this.ask("run", "/api/run", question));
  }

  async head(question: Question, run: Run, head: string): Promise<(Float32Array | undefined)[]> {
    if (run.tokensPerCell === 1) return headFromMaps(run, head);
    const frame = await this.ask("head", "/api/head", { ...question, head });
    return run.models.map((_, m) => frame.array(`map.${m}`));
  }

  async token(question: Question, run: Run, position: number): Promise<TokenRows> {
    if (run.tokensPerCell === 1) return rowsFromMaps(run, position);
    const frame = await this.ask("token", "/api/token", { ...question, position });
    const arrays = (name: string) => run.models.map((_, m) => frame.array(`${name}.${m}`) ?? new Float32Array());
    return { reads: arrays("reads"), readBy: arrays("read_by") };
  }

  async features(question: Question): Promise<PromptFeatures> {
    return featuresOf(await this.ask("features", "/api/features", { ...question, strongest: 5 }));
  }

  async feature(model: number, name: string): Promise<FeatureCard> {
    return (await this.ask("feature", "/api/feature", { model, feature: name })).header as unknown as FeatureCard;
  }

  async find(model: number, text: string): Promise<FoundFeatures> {
    return (await this.ask(`find${model}`, "/api/find", { model, text, most: 40 })).header as unknown as FoundFeatures;
  }

  // Models, edges and heads of either side are asked for side by side.
  async trace(model: number, prompt: string): Promise<Trace> {
    return traceOf(await this.ask(`trace${model}`, "/api/trace", { model, prompt }));
  }

  async carriers(model: number, prompt: string, from: string, to: string): Promise<EdgeCarriers> {
    return (await this.ask(`carriers${model}`, "/api/carriers", { model, prompt, from, to })).header as unknown as EdgeCarriers;
  }

  async reasons(model: number, prompt: string, head: string, query: number, key: number): Promise<HeadReasons> {
    return (await this.ask(`reasons${model}`, "/api/reasons", { model, prompt, head, query, key })).header as unknown as HeadReasons;
  }

  async changed(question: Question, changes: Changes): Promise<ChangedRun> {
    return (await this.ask(`changed${changes.model}`, "/api/changed", { ...question, ...changes, likeliest: 25 })).header as unknown as ChangedRun;
  }

  async lens(question: Question, model: number, position: number, target: string): Promise<PromptLens> {
    return (await this.ask(`lens${model}`, "/api/lens", { ...question, model, position, likeliest: 5, ...(target === "" ? {} : { target }) })).header as unknown as PromptLens;
  }

  private async ask(line: string, path: string, question: object): Promise<Frame> {
    this.running.get(line)?.abort();
    const control = new AbortController();
    this.running.set(line, control);
    const body = JSON.stringify({ ...question, client: `${this.client}.${line}`, number: ++this.number });
    const answer = await this.fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body, signal: control.signal,
    });
    return parseFrame(await answer.arrayBuffer());
  }

  private async fetch(path: string, options: RequestInit): Promise<Response> {
    const answer = await fetch(path, options);
    if (answer.ok) return answer;
    const message = await answer.json().then((json: { error?: string }) => json.error, () => undefined);
    throw new Error(message ?? `the server answered ${answer.status}`);
  }
}

function decode(text: string): ArrayBuffer {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
}

function ablationsOf(frame: Frame): Ablations {
  const header = frame.header as unknown as Omit<Ablations, "models"> & { models: { sets: string[][] }[] };
  const array = (name: string, m: number) => frame.array(`${name}.${m}`) ?? new Float32Array();
  return {
    ...header,
    models: header.models.map(({ sets }, m) => ({
      sets, losses: array("losses", m), ids: array("ids", m), probabilities: array("probabilities", m),
    })),
  };
}

// The predictions of one model with these heads off; maps and names stay those with every head on.
function ablated(run: Run, ablations: Ablations, m: number, heads: string[]): ModelRun {
  const base = run.models[m], held = ablations.models[m];
  if (base === undefined || heads.length === 0) return base as ModelRun;
  const wanted = [...heads].sort().join();
  const index = held?.sets.findIndex((set) => [...set].sort().join() === wanted) ?? -1;
  if (held === undefined || index < 0) throw new Error("this file does not hold a run with these heads off; `clearhead serve` runs any");
  const T = run.tokens.length, P = ablations.positions;
  const perPosition = held.ids.length / (held.sets.length * P);
  const predictions = run.tokens.map((_, t): Prediction => {
    const start = (index * P + (t - (T - P))) * perPosition;
    const likeliest = t < T - P ? [] : [...held.ids.subarray(start, start + perPosition)].map((id, k) => ({
      id, token: ablations.tokens[String(id)] ?? `#${id}`, probability: held.probabilities[start + k] ?? 0,
    }));
    return { loss: t + 1 < T ? held.losses[index * (T - 1) + t] ?? null : null, likeliest };
  });
  const losses = predictions.flatMap((prediction) => prediction.loss ?? []);
  const loss = losses.length === 0 ? null : losses.reduce((sum, value) => sum + value, 0) / losses.length;
  return { ...base, ablated: heads, predictions, loss };
}

class InlineSource implements Source {
  readonly live = false;
  private readonly runs: Run[];
  private readonly ablations: Ablations[];
  private readonly prompted: PromptFeatures[];
  private readonly cards: Cards[];
  private readonly traces: Trace[];
  private readonly details: TraceDetails[];
  private readonly lenses: PromptLens[];

  constructor(private readonly data: Map<string, string[]>) {
    this.runs = (data.get("run") ?? []).map((text) => runOf(parseFrame(decode(text))));
    this.ablations = (data.get("ablations") ?? []).map((text) => ablationsOf(parseFrame(decode(text))));
    this.prompted = (data.get("features") ?? []).map((text) => featuresOf(parseFrame(decode(text))));
    this.cards = (data.get("cards") ?? []).map((_, i) => this.json("cards", i) as unknown as Cards);
    this.traces = (data.get("trace") ?? []).map((text) => traceOf(parseFrame(decode(text))));
    this.details = (data.get("trace-details") ?? []).map((_, i) => this.json("trace-details", i) as unknown as TraceDetails);
    this.lenses = (data.get("lens") ?? []).map((text) => parseFrame(decode(text)).header as unknown as PromptLens);
  }

  prompts(): string[] {
    return this.runs.map((run) => run.prompt);
  }

  async overview(): Promise<Overview> {
    return this.json("overview", 0) as unknown as Overview;
  }

  async result(index: number): Promise<Record<string, unknown>> {
    return this.json("result", index);
  }

  async run(question: Question): Promise<Run> {
    const run = this.runs.find((candidate) => candidate.prompt === question.prompt);
    if (run === undefined) throw new Error("this file holds only its own prompts; `clearhead serve` runs any");
    if (question.ablate.every((heads) => heads.length === 0)) return run;
    const ablations = this.ablations.find((candidate) => candidate.prompt === question.prompt);
    if (ablations === undefined) throw new Error("this file holds no runs with heads off");
    return { ...run, models: run.models.map((_, m) => ablated(run, ablations, m, question.ablate[m] ?? [])) };
  }

  async head(_question: Question, run: Run, head: string): Promise<(Float32Array | undefined)[]> {
    return headFromMaps(run, head);
  }

  async token(_question: Question, run: Run, position: number): Promise<TokenRows> {
    return rowsFromMaps(run, position);
  }

  async features(question: Question): Promise<PromptFeatures> {
    const prompted = this.prompted.find((candidate) => candidate.prompt === question.prompt);
    if (prompted === undefined) throw new Error("this file holds only its own prompts; `clearhead serve` runs any");
    return prompted;
  }

  async feature(model: number, name: string): Promise<FeatureCard> {
    const card = this.cards.find((candidate) => candidate.model === model)?.cards[name];
    if (card === undefined) throw new Error(`this file does not hold the card of ${name}; \`clearhead serve\` has all`);
    return card;
  }

  async find(model: number, text: string): Promise<FoundFeatures> {
    return searchCards(this.cards.find((candidate) => candidate.model === model)?.cards ?? {}, text);
  }

  async trace(model: number, prompt: string): Promise<Trace> {
    const trace = this.traces.find((candidate) => candidate.model === model && candidate.prompt === prompt);
    if (trace === undefined) throw new Error("this file holds no trace of this prompt; `clearhead serve` traces prompts of up to 64 tokens");
    return trace;
  }

  async carriers(model: number, prompt: string, from: string, to: string): Promise<EdgeCarriers> {
    const carriers = this.detailsOf(model, prompt).carriers[`${from} → ${to}`];
    if (carriers === undefined) throw new Error("this file holds the heads of the strongest edges between groups only; `clearhead serve` splits any");
    return carriers;
  }

  async reasons(model: number, prompt: string, head: string, query: number, key: number): Promise<HeadReasons> {
    const reasons = this.detailsOf(model, prompt).reasons[cellName({ head, query, key })];
    if (reasons === undefined) throw new Error("this file holds the reasons of the strongest heads only; `clearhead serve` has all");
    return reasons;
  }

  // Predictions after the last token only.
  async changed(question: Question, changes: Changes): Promise<ChangedRun> {
    const details = this.details.find((candidate) => candidate.model === changes.model && candidate.prompt === question.prompt);
    const after = changes.features === undefined ? details?.cuts[(changes.cut ?? []).map(cellName).sort().join()] : undefined;
    if (details === undefined || after === undefined) throw new Error("this file does not hold a run with this change; `clearhead serve` runs any");
    const whole = ({ loss, last }: TraceDetails["before"]) => ({
      loss, predictions: [...Array<Prediction>(Math.max(0, (this.runs.find((run) => run.prompt === question.prompt)?.tokens.length ?? 1) - 1)).fill({ loss: null, likeliest: [] }), last],
    });
    return { before: whole(details.before), after: whole(after) };
  }

  // With every head on and without a target; heads after the last token.
  async lens(question: Question, model: number, _position: number, target: string): Promise<PromptLens> {
    const lens = this.lenses.find((candidate) => candidate.model === model && candidate.prompt === question.prompt);
    if (lens === undefined) throw new Error("this file holds no lens of this prompt; `clearhead serve` takes prompts of up to 128 tokens");
    if (target !== "") throw new Error("this file follows what each position predicts; `clearhead serve` follows any token");
    return lens;
  }

  private detailsOf(model: number, prompt: string): TraceDetails {
    const details = this.details.find((candidate) => candidate.model === model && candidate.prompt === prompt);
    if (details === undefined) throw new Error("this file holds no trace of this prompt");
    return details;
  }

  private json(kind: string, index: number): Record<string, unknown> {
    const text = this.data.get(kind)?.[index];
    if (text === undefined) throw new Error("this file does not hold that");
    return JSON.parse(new TextDecoder().decode(decode(text))) as Record<string, unknown>;
  }
}

export function openSource(): { source: Source; prompts: string[] | undefined } {
  const data = new Map<string, string[]>();
  for (const element of document.querySelectorAll<HTMLElement>("script[data-clearhead]")) {
    const kind = element.dataset["clearhead"] ?? "";
    data.set(kind, [...(data.get(kind) ?? []), element.textContent ?? ""]);
  }
  if (data.size === 0) return { source: new LiveSource(), prompts: undefined };
  const source = new InlineSource(data);
  return { source, prompts: source.prompts() };
}
