// The page in Chromium: what a person does, and what must never happen.
//   node browser_test.mjs PROGRAM MAKE_MODELS FOLDER_WITH_NODE_MODULES CHROMIUM SCREENSHOTS
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [program, makeModels, modules, chromiumPath, screenshots] = process.argv.slice(2).map((path) => resolve(path));
const { chromium } = createRequire(join(modules, "package.json"))("playwright-core");
const folder = mkdtempSync(join(tmpdir(), "clearhead-browser-"));
const prompt = "The cat sat on the other mat, naïve cat";
mkdirSync(screenshots, { recursive: true });

function writeResults() {
  mkdirSync(join(folder, "results", "copy"), { recursive: true });
  const heads = ["L1H2", "L0H1", "L0H0", "L0H2", "L1H0", "L1H1"].map((head, i) => ({
    head, layer: Number(head[1]), index: Number(head[3]), importance: 1 - i / 5, share: 0.5 - i / 10, role: i === 0 ? "induction" : "",
  }));
  writeFileSync(join(folder, "results", "copy", "circuit.json"), JSON.stringify({
    schema: "clearhead.circuit/1", model: "dense", task: "copy", metric: "logit difference", layers: 2, heads_per_layer: 3, items: 10,
    clean_metric: 2, corrupted_metric: -1, at_90: 2, total: 6, heads, mlps: [{ mlp: "MLP 0", layer: 0, importance: 0.2, share: 0.1 }],
    curve: [0, 1, 2, 3, 4, 5, 6].map((size) => ({ size, metric: size, faithfulness: Math.min(1, size / 2.1) })),
    random: [0, 3, 6].map((size) => ({ size, faithfulness: size / 6 })),
    edges: { edges_at_90: [{ edge: "input->a0.h1<q>", score: 0.5 }, { edge: "a0.h1->a1.h2<v>", score: 0.4 }, { edge: "a1.h2->logits", score: -0.2 }] },
  }));
  const scatter = execFileSync(program, ["scatter", join(folder, "dense"), "--prompt", prompt, "--heads", "L0H0,L0H1,L1H2",
    "--out", join(folder, "scatter.pdf"), "--json"]);
  writeFileSync(join(folder, "results", "scatter.json"), scatter);
}

async function serve(args) {
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

async function ask(address, path, question) {
  const answer = await fetch(address + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
  assert.equal(answer.status, 200, path);
  return parseFrame(Buffer.from(await answer.arrayBuffer()));
}

// White at 0, #08306b at 1; open edges never quite white.
function colorOf(weight) {
  const step = weight > 0 ? Math.max(4, Math.round(255 * Math.min(1, weight))) : 0;
  return [0x08, 0x30, 0x6b].map((full) => Math.round(255 + (step / 255) * (full - 255)));
}

const pixelsOf = (page, selector) => page.evaluate((sel) => [...document.querySelectorAll(sel)].map((canvas) => ({
  model: Number(canvas.dataset.model), head: canvas.dataset.head, side: canvas.width,
  data: [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data],
})), selector);

function checkPixels(canvases, frame) {
  assert.equal(canvases.length, 12, "two models of six heads");
  let dark = 0;
  for (const { model, head, side, data } of canvases) {
    const index = frame.header.models[model].heads.findIndex((info) => info.head === head);
    const maps = frame.array(`maps.${model}`);
    assert.equal(side, frame.header.tokens.length);
    for (let i = 0; i < side * side; ++i) {
      const expected = colorOf(maps[index * side * side + i]);
      const seen = data.slice(4 * i, 4 * i + 3);
      assert.ok(expected.every((part, k) => Math.abs(part - seen[k]) <= 1), `${head} of model ${model}, pixel ${i}: ${seen}, expected ${expected}`);
      if (maps[index * side * side + i] > 0.5) ++dark;
    }
  }
  assert.ok(dark > 0, "something is drawn");
}

function watch(page, home) {
  const trouble = [];
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
async function until(page, holds, argument) {
  for (const end = Date.now() + 30_000; Date.now() < end; await page.waitForTimeout(20)) {
    if (await page.evaluate(holds, argument)) return;
  }
  throw new Error(`not within 30 s: ${holds}; status: ${await page.textContent("#status")}`);
}

const ran = (page, more) => until(page, (turn) => Number(document.body.dataset.ran ?? 0) > turn && !document.body.hasAttribute("aria-busy"), more);
const turnOf = (page) => page.evaluate(() => Number(document.body.dataset.ran ?? 0));
const shot = (page, name) => page.screenshot({ path: join(screenshots, `${name}.png`) });
async function after(page, action) {
  const turn = await turnOf(page);
  await action();
  await ran(page, turn);
}

async function testServed(browser, address) {
  const page = await browser.newPage({ viewport: { width: 1366, height: 768 } });
  const trouble = watch(page, address);
  await page.goto(address);
  await ran(page, 0);
  const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity);
  console.log(`first paint ${Math.round(paint)} ms`);
  assert.ok(paint < 1000, "first paint within a second");

  // Type a prompt: maps as the API says.
  await page.fill("#prompt", prompt);
  await after(page, () => page.press("#prompt", "Enter"));
  const frame = await ask(address, "api/run", { prompt });
  checkPixels(await pixelsOf(page, ".card canvas"), frame);
  assert.match(await page.textContent("#status"), new RegExp(`^${frame.header.tokens.length} tokens`));
  await shot(page, "grid");

  // Hover: the pair of tokens and the weight.
  const box = await page.locator('.card canvas[data-model="1"][data-head="L1H1"]').boundingBox();
  const T = frame.header.tokens.length, query = T - 2, key = 1;
  await page.mouse.move(box.x + ((key + 0.5) / T) * box.width, box.y + ((query + 0.5) / T) * box.height);
  const weight = frame.array("maps.1")[(4 * T + query) * T + key];
  const tip = await page.textContent("#tip");
  assert.ok(tip.includes(`gated: ${weight.toFixed(4)}`), `${tip} has ${weight}`);
  assert.ok(tip.includes(`(${query}) reads`) && tip.includes(`(${key})`), tip);

  // Filters, sorting, size.
  await page.selectOption('.bar label:has-text("layer") select', "1");
  assert.equal(await page.locator(".card").count(), 3);
  await page.selectOption('.bar label:has-text("layer") select', "");
  await page.selectOption('.bar label:has-text("sort by") select', "importance");
  const order = await page.locator(".card").evaluateAll((cards) => cards.map((card) => card.dataset.head));
  const sorted = [...frame.header.models[1].heads].sort((a, b) => b.importance - a.importance).map((info) => info.head);
  assert.deepEqual(order, sorted);
  await page.locator("#map-size").fill("140");
  assert.equal(Math.round((await page.locator(".card canvas").first().boundingBox()).width), 140);

  // A head in large: click, keys, and back by the address.
  await page.click('.card[data-head="L0H1"]');
  await page.waitForSelector("dialog[open] canvas[data-big]");
  assert.equal(await page.locator("dialog canvas").count(), 2);
  assert.ok((await page.textContent("dialog")).includes(frame.header.models[1].heads[1].sentence));
  await shot(page, "head");
  assert.match(page.url(), /head=L0H1/);
  await page.keyboard.press("ArrowRight");
  await until(page, () => !location.hash.includes("head=L0H1"));
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog:not([open])", { state: "attached" });

  // Tokens and predictions, by keyboard.
  await page.locator("main").focus();
  await page.keyboard.press("2");
  await page.waitForSelector(".token.chosen");
  await page.locator('.token[data-at="4"]').first().click();
  await until(page, () => location.hash.includes("at=4"));
  await page.waitForSelector('.token.chosen[data-at="4"]');
  await shot(page, "tokens");
  await page.locator("main").focus();
  await page.keyboard.press("3");
  await page.waitForSelector("tr[data-at]");
  const loss = frame.header.models[1].predictions[2].loss.toFixed(3);
  assert.ok((await page.textContent('tr[data-at="2"]')).includes(loss));
  await shot(page, "predictions");

  // Switch a head off: the prediction changes in that model only, as the API says.
  await page.click('nav [data-view="ablate"]');
  const shown = (m) => page.textContent(`[data-distribution="${m}"]`);
  const before = [await shown(0), await shown(1)];
  await after(page, () => page.click('button[data-head="L0H1"][data-model="1"]'));
  assert.equal(await shown(0), before[0]);
  assert.notEqual(await shown(1), before[1]);
  const ablated = await ask(address, "api/run", { prompt, ablate: [[], ["L0H1"]] });
  const best = ablated.header.models[1].predictions[4].likeliest[0];
  const text = await shown(1);
  assert.ok(text.includes((100 * best.probability).toFixed(best.probability < 0.0995 ? 2 : 1)), text);
  await shot(page, "ablate");
  await page.click('nav [data-view="grid"]');
  checkPixels(await pixelsOf(page, ".card canvas"), ablated);
  assert.equal(await page.locator("figure.off").count(), 1);
  await page.click('nav [data-view="ablate"]');
  await after(page, () => page.locator('section:has(h2:text-is("dense")) button:has-text("all but the circuit")').click());
  assert.equal(await page.locator('button[data-model="0"][aria-pressed="true"]').count(), 4);

  // Results of other commands.
  await page.click('nav [data-view="circuit"]');
  await page.waitForSelector("main svg circle");
  assert.equal(await page.locator("main svg circle").count(), 6);
  await shot(page, "circuit");
  await page.click('nav [data-view="scatter"]');
  await page.waitForSelector("main table svg");
  await shot(page, "scatter");

  // The address is the view.
  const shared = await browser.newPage({ viewport: { width: 2200, height: 1200 } });
  const sharedTrouble = watch(shared, address);
  await shared.goto(page.url().replace("view=scatter", "view=ablate"));
  await ran(shared, 0);
  assert.equal(await shared.locator('button[data-model="1"][aria-pressed="true"]').count(), 1);
  assert.equal(await shared.inputValue("#prompt"), prompt);
  await shot(shared, "ablate-large");
  assert.deepEqual(sharedTrouble, []);

  // A prompt that is too long is an error in words, and the page goes on.
  await page.click('nav [data-view="grid"]');
  assert.deepEqual(trouble, []);
  await page.fill("#prompt", "zyx ".repeat(100));
  await page.press("#prompt", "Enter");
  await page.waitForSelector("#status.bad");
  assert.match(await page.textContent("#status"), /the models take 48/);
  trouble.length = 0; // the browser itself reports the refusal, status 400
  // Fast typing: the last prompt wins.
  for (const words of ["The", "The cat", "The cat sat", "The cat sat on"]) {
    await page.fill("#prompt", words);
    await page.press("#prompt", "Enter");
  }
  await until(page, () => /^\d+ tokens/.test(document.querySelector("#status").textContent) && !document.body.hasAttribute("aria-busy"));
  const last = await ask(address, "api/run", { prompt: "The cat sat on" });
  assert.match(await page.textContent("#status"), new RegExp(`^${last.header.tokens.length} tokens`));
  assert.deepEqual(trouble.filter((line) => !line.includes("409")), []);
}

// As many heads as two GPT-2s have, and a prompt of nearly 512 tokens: reduced maps in the grid, whole ones on demand.
async function testLong(browser) {
  const { server, address } = await serve([join(folder, "many-dense"), join(folder, "many-gated")]);
  try {
    const long = "The" + " cat sat on the other mat".repeat(80);
    const page = await browser.newPage({ viewport: { width: 1920, height: 1080 } });
    const trouble = watch(page, address);
    const began = Date.now();
    await page.goto(`${address}#prompt=${encodeURIComponent(long)}`);
    await ran(page, 0);
    const frame = await ask(address, "api/run", { prompt: long });
    const T = frame.header.tokens.length;
    assert.ok(T > 440 && T <= 512, `${T} tokens`);
    console.log(`${T} tokens, 288 heads shown after ${Date.now() - began} ms; ${await page.textContent("#status")}`);
    assert.equal(await page.locator(".card canvas").count(), 288);
    const frames = await page.evaluate(() => new Promise((done) => {
      const times = [];
      let last = performance.now();
      const step = (now) => {
        times.push(now - last);
        last = now;
        scrollBy(0, 40);
        if (times.length < 60) requestAnimationFrame(step);
        else done(times.sort((a, b) => a - b));
      };
      requestAnimationFrame(step);
    }));
    console.log(`scrolling: ${frames[30].toFixed(1)} ms a frame in the median, ${frames[56].toFixed(1)} ms in the worst twentieth`);
    assert.ok(frames[30] < 100, `${frames[30]} ms a frame`);
    await shot(page, "long-grid");

    // One head in large: the whole map, not the reduced one.
    await page.evaluate(() => scrollTo(0, 0));
    await page.click('.card[data-head="L0H3"]');
    await page.waitForSelector("dialog[open] canvas[data-big]");
    const head = await ask(address, "api/head", { prompt: long, head: "L0H3" });
    const [big] = await pixelsOf(page, 'canvas[data-big="1"]');
    assert.equal(big.side, T);
    head.array("map.1").forEach((weight, i) => {
      const expected = colorOf(weight);
      assert.ok(expected.every((part, k) => Math.abs(part - big.data[4 * i + k]) <= 1), `pixel ${i}`);
    });
    await shot(page, "long-head");
    await page.keyboard.press("Escape");
    await page.click('nav [data-view="tokens"]');
    await page.waitForSelector(".token.chosen");
    await shot(page, "long-tokens");
    assert.deepEqual(trouble, []);
    await page.close();
  } finally {
    server.kill("SIGKILL");
  }
}

async function testReport(browser) {
  const file = join(folder, "report.html");
  execFileSync(program, ["report", join(folder, "dense"), join(folder, "gated"), "--prompt", prompt, "--prompt", "The other mat",
    "--results", join(folder, "results"), "--out", file]);
  console.log(`report ${(statSync(file).size / 1e6).toFixed(2)} MB`);
  const context = await browser.newContext({ offline: true, viewport: { width: 1366, height: 768 } });
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  const trouble = watch(page, url);
  await page.goto(url);
  await ran(page, 0);
  const { server, address } = await serve([join(folder, "dense"), join(folder, "gated")]);
  checkPixels(await pixelsOf(page, ".card canvas"), await ask(address, "api/run", { prompt }));
  server.kill("SIGKILL");
  await shot(page, "report");
  await page.click('.card[data-head="L1H0"]');
  await page.waitForSelector("dialog[open] canvas[data-big]");
  await page.keyboard.press("Escape");
  for (const view of ["tokens", "predictions", "ablate", "circuit", "scatter"]) await page.click(`nav [data-view="${view}"]`);
  await page.waitForSelector("main table svg");
  await after(page, () => page.selectOption("#examples", "The other mat"));
  assert.equal(await page.inputValue("#prompt"), "The other mat");
  assert.deepEqual(trouble, []);
  await context.close();
}

let server, browser;
try {
  execFileSync(makeModels, [folder]);
  writeResults();
  const served = await serve([join(folder, "dense"), join(folder, "gated"), "--results", join(folder, "results")]);
  server = served.server;
  browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-gpu"] });
  await testServed(browser, served.address);
  await testLong(browser);
  await testReport(browser);
  // Ctrl-C ends it at once.
  const ended = new Promise((done) => server.on("exit", done));
  const began = Date.now();
  server.kill("SIGINT");
  await ended;
  assert.ok(Date.now() - began < 1000);
  console.log("passed");
} finally {
  await browser?.close();
  server?.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}
