// SPDX-License-Identifier: MIT
// Answers that a view may need again when it is built anew: what is known is drawn at once, what is asked is drawn when it comes.
import { el } from "../dom";

type Child = Node | string;

export class Answers<T> {
  private readonly known = new Map<string, T>();
  private readonly asked = new Map<string, Promise<T>>();

  constructor(private readonly most: number) {}

  get(key: string): T | undefined {
    return this.known.get(key);
  }

  into(place: HTMLElement, key: string, ask: () => Promise<T>, draw: (answer: T) => Child[]): void {
    const known = this.known.get(key);
    if (known !== undefined) {
      place.replaceChildren(...draw(known));
      return;
    }
    place.replaceChildren(el("p", { className: "soft", textContent: "Running …" }));
    this.ask(key, ask).then((answer) => place.replaceChildren(...draw(answer)), (error: Error) => {
      if (error.name !== "AbortError" && !error.message.startsWith("a newer question")) place.replaceChildren(el("p", { className: "up", textContent: error.message }));
    });
  }

  private ask(key: string, ask: () => Promise<T>): Promise<T> {
    const waiting = this.asked.get(key);
    if (waiting !== undefined) return waiting;
    const promise = ask();
    this.asked.set(key, promise);
    promise.then((answer) => {
      this.known.set(key, answer);
      const oldest = this.known.keys().next();
      if (this.known.size > this.most && oldest.done !== true) this.known.delete(oldest.value);
    }, () => undefined).finally(() => this.asked.delete(key)).catch(() => undefined);
    return promise;
  }
}
