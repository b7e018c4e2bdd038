// SPDX-License-Identifier: MIT
// What the browser's tests share: the command line, the server, frames, waiting, pictures.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const paths = process.argv.slice(2, 7).map((path) => resolve(path));
export const [program, makeModels, modules, chromiumPath, screenshots] = paths;
export const folder = mkdtempSync(join(tmpdir(), "clearhead-browser-"));
export const prompt = "The cat sat on the other mat, naïve cat";
export const patience = 120_000; // ms: the machine may be busy with other things
mkdirSync(screenshots, { recursive: true });

export async function serve(args) {
  const server = spawn(program, ["serve", ...args, "--port", "0", "--json"], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  for await (const piece of server.stdout) {
    text += piece;
    if (text.trimEnd().endsWith("}")) break;
  }
  return { server, address: JSON.parse(text).address };
}

// The frame, read here from its description in docs/api.md, not with the page's code.
function parseFrame(buffer) {
  assert.equal(buffer.subarray(0, 4).toString("latin1"), "CHF1");
  const size = buffer.readUInt32LE(4);
  const header = JSON.parse(buffer.subarray(8, 8 + size).toString("utf8"));
  const array = (name) => {
    const { shape, offset } = header.arrays[name];
    const count = shape.reduce((a, b) => a * b, 1);
    return Array.from({ length: count }, (_, i) => buffer.readFloatLE(8 + size + 4 * (offset + i)));
  };
  return { header, array };
}

export async function ask(address, path, question) {
  const answer = await fetch(address + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
  assert.equal(answer.status, 200, path);
  return parseFrame(Buffer.from(await answer.arrayBuffer()));
}

// White at 0, #08306b at 1; open edges never quite white.
export function colorOf(weight) {
  const step = weight > 0 ? Math.max(4, Math.round(255 * Math.min(1, weight))) : 0;
  return [0x08, 0x30, 0x6b].map((full) => Math.round(255 + (step / 255) * (full - 255)));
}

export const pixelsOf = (page, selector) => page.evaluate((sel) => [...document.querySelectorAll(sel)].map((canvas) => ({
  model: Number(canvas.dataset.model), head: canvas.dataset.head, side: canvas.width,
  data: [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data],
})), selector);

export function watch(page, home) {
  const trouble = [];
  page.setDefaultTimeout(patience);
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") trouble.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => trouble.push(`error: ${error.message}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(home) && !request.url().startsWith("data:")) trouble.push(`request to ${request.url()}`);
  });
  return trouble;
}

// Playwright's own waitForFunction evaluates strings, which the page's policy forbids.
export async function until(page, holds, argument) {
  for (const end = Date.now() + patience; Date.now() < end; await page.waitForTimeout(20)) {
    if (await page.evaluate(holds, argument)) return;
  }
  throw new Error(`not within ${patience} ms: ${holds}; status: ${await page.textContent("#status")}`);
}

export const ran = (page, more) => until(page, (turn) => Number(document.body.dataset.ran ?? 0) > turn && !document.body.hasAttribute("aria-busy"), more);
const turnOf = (page) => page.evaluate(() => Number(document.body.dataset.ran ?? 0));

// Texts that are hard to read: WCAG's contrast below 4.5 (3 for large ones) with the colour behind them.
const paleTexts = (page) => page.evaluate(() => {
  const channels = (color) => (color.match(/[\d.]+/g) ?? ["0", "0", "0", "0"]).map(Number);
  const luminance = (color) => channels(color).slice(0, 3)
    .map((part) => (part <= 10 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, k) => sum + part * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (element) => {
    for (let e = element; e !== null; e = e.parentElement) {
      const [r, g, b, alpha = 1] = channels(getComputedStyle(e).backgroundColor);
      if (alpha === 1) return `rgb(${r}, ${g}, ${b})`;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")].flatMap((element) => {
    const text = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.data).join("").trim();
    if (text === "" || element.getClientRects().length === 0 || ["SCRIPT", "STYLE", "OPTION"].includes(element.tagName)) return [];
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [low, high] = [luminance(ink), luminance(behind(element))].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    return contrast < (size >= 24 ? 3 : 4.5) ? [`${element.tagName} "${text.slice(0, 30)}" ${ink} on ${behind(element)}: ${contrast.toFixed(2)}`] : [];
  });
});

// A picture of the view on a laptop and on a large screen, readable on both.
export async function shot(page, name, large = true) {
  const small = page.viewportSize();
  await page.screenshot({ path: join(screenshots, `${name}.png`) });
  assert.deepEqual(await paleTexts(page), [], name);
  if (!large) return;
  await page.setViewportSize({ width: 2560, height: 1440 });
  await page.waitForTimeout(400); // the page redraws a moment after
  await page.screenshot({ path: join(screenshots, `${name}-large.png`) });
  await page.setViewportSize(small);
  await page.waitForTimeout(400);
}

export async function after(page, action) {
  const turn = await turnOf(page);
  await action();
  await ran(page, turn);
}
