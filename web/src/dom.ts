// SPDX-License-Identifier: MIT
// Small helpers for building the document.
type Child = Node | string;

export function el<K extends keyof HTMLElementTagNameMap>(
  name: K, properties: Partial<Omit<HTMLElementTagNameMap[K], "attributes">> & { attributes?: Record<string, string> } = {}, children: Child[] = [],
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  const { attributes, ...rest } = properties;
  Object.assign(element, rest);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function byId<T extends HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element as T;
}

// Tokens in sentences of the page: spaces and line ends must be seen.
export function quoted(token: string): string {
  return `“${token.replaceAll("\n", "⏎").replaceAll("\t", "⇥")}”`;
}

export function percent(share: number): string {
  if (share > 0 && share < 0.00005) return "< 0.01 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 2 : 1)} %`;
}

export function showTip(text: string, event: { clientX: number; clientY: number }): void {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

export function hideTip(): void {
  byId("tip").hidden = true;
}

// A drawing as a child of an element; D3 gives null where it drew nothing.
export function drawn(svg: SVGSVGElement | null): Child[] {
  return svg === null ? [] : [svg];
}

// "−1.50", and a zero without a sign.
export function signed(value: number, places: number): string {
  const text = value.toFixed(places);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export function signedPercent(share: number): string {
  return `${signed(100 * share, 1)} %`;
}

export function selectOf(label: string, value: string, options: [string, string][], change: (value: string) => void): HTMLLabelElement {
  const select = el("select", {}, options.map(([key, text]) => el("option", { value: key, textContent: text })));
  select.value = value;
  select.onchange = () => change(select.value);
  return el("label", {}, [label, select]);
}
