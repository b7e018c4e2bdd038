// SPDX-License-Identifier: MIT
// Attention maps on canvas: white is 0, dark blue is 1, linearly, as in the figures of the program.
const full = [0x08, 0x30, 0x6b] as const;

const colors: Uint32Array = (() => {
  const table = new Uint32Array(256);
  for (let i = 0; i < 256; ++i) {
    const part = (k: 0 | 1 | 2) => Math.round(255 + (i / 255) * (full[k] - 255));
    table[i] = (255 << 24) | (part(2) << 16) | (part(1) << 8) | part(0); // little-endian RGBA
  }
  return table;
})();

export function weightColor(weight: number): string {
  const color = colors[Math.round(255 * Math.min(1, Math.max(0, weight)))] ?? 0;
  return `rgb(${color & 255},${(color >> 8) & 255},${(color >> 16) & 255})`;
}

// One pixel for each cell; CSS scales it without smoothing.
export function drawMap(canvas: HTMLCanvasElement, weights: Float32Array, cells: number): void {
  canvas.width = cells;
  canvas.height = cells;
  const context = canvas.getContext("2d");
  if (context === null || cells === 0) return;
  const image = context.createImageData(cells, cells);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; ++i) {
    const weight = weights[i] ?? 0;
    // An open edge must not look closed.
    const step = weight > 0 ? Math.max(4, Math.round(255 * Math.min(1, weight))) : 0;
    pixels[i] = colors[step] ?? 0;
  }
  context.putImageData(image, 0, 0);
}

export function cellAt(canvas: HTMLCanvasElement, cells: number, event: MouseEvent): { query: number; key: number } | undefined {
  const box = canvas.getBoundingClientRect();
  const key = Math.floor(((event.clientX - box.left) / box.width) * cells);
  const query = Math.floor(((event.clientY - box.top) / box.height) * cells);
  if (key < 0 || query < 0 || key >= cells || query >= cells || key > query) return undefined;
  return { query, key };
}
