// SPDX-License-Identifier: MIT
// The page in Chromium: what a person does, and what must never happen.
//   node browser_test.mjs PROGRAM MAKE_MODELS FOLDER_WITH_NODE_MODULES CHROMIUM SCREENSHOTS [features|lens]
// With the last word only the views of features and traces (feature_views.mjs), or of the lens and of cuts (lens_views.mjs).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { testFeaturesAndTraces } from "./feature_views.mjs";
import { testLensAndCuts } from "./lens_views.mjs";
import { after, ask, chromiumPath, colorOf, folder, makeModels, modules, patience, pixelsOf, program, prompt, ran, serve, shot, until, watch } from "./support.mjs";

const { chromium } = createRequire(join(modules, "package.json"))("playwright-core");
const long = "The" + " cat sat on the other mat".repeat(80);
const digits = "03453"; // the induction pair goes on with 4

// Results as the commands write them: circuits of a pair that has one, scatter plots of few pairs (points) and of many (counts), correlations.
function writeResults() {
  const at = (name) => join(folder, name), results = at("results");
  mkdirSync(results);
  execFileSync(program, ["circuit", at("induction/dense"), at("induction/sparse"), "--import", at("induction/digits.csv"), "--level", "both",
    "--random", "2", "--out", join(results, "digits")]);
  const scatter = (name, args) => writeFileSync(join(results, name), execFileSync(program, ["scatter", ...args, "--out", at("figure.svg"), "--json"]));
  scatter("points.json", [at("dense"), at("gated"), "--prompt", prompt, "--heads", "L0H0,L0H1,L1H2"]);
  scatter("counts.json", [at("many-dense"), "--prompt", long, "--heads", "L0H0,L5H1"]);
  scatter("correlations.json", [at("dense"), "--prompt", prompt, "--all"]);
  return results;
}

function checkPixels(canvases, frame) {
  assert.equal(canvases.length, frame.header.models.reduce((sum, model) => sum + model.heads.length, 0), "every head of both models");
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

// Seconds of processor time of the page's main thread: what it costs, whatever else the machine does.
async function processorTime(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => (await session.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value;
}

const largestOf = (values) => values.reduce(([most, at], value, i) => (value > most ? [value, i] : [most, at]), [0, -1]);

async function testServed(browser, address) {
  const page = await browser.newPage({ viewport: { width: 1366, height: 768 } });
  const trouble = watch(page, address);
  const spent = await processorTime(page);
  await page.goto(address);
  await ran(page, 0);
  // The entry may come after the page's own work: a busy machine paints later than it draws.
  const entry = await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
  const paint = await entry.jsonValue();
  const cost = await spent();
  console.log(`first paint after ${Math.round(paint)} ms; loading and drawing the first prompt took ${Math.round(1000 * cost)} ms of processor time`);
  assert.ok(cost < 1, "loading and the first drawing take less than a second of processor time");
  assert.match(await page.textContent("#view"), /Each square is a head/);

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
  const infos = frame.header.models.map((model) => model.heads);
  const passing = (passes) => infos[0].filter((_, i) => infos.some((heads) => passes(heads[i]))).length;
  const kind = infos[1][0].kind;
  await page.selectOption('.bar label:has-text("kind") select', kind);
  assert.equal(await page.locator(".card").count(), passing((head) => head.kind === kind));
  await page.selectOption('.bar label:has-text("kind") select', "");
  await page.fill('.bar label:has-text("find") input', "l1h");
  assert.equal(await page.locator(".card").count(), 3);
  await page.fill('.bar label:has-text("find") input', kind);
  assert.equal(await page.locator(".card").count(), passing((head) => head.name.toLowerCase().includes(kind)));
  await page.fill('.bar label:has-text("find") input', "");
  const fill = async (label, value) => {
    await page.fill(`.bar label:has-text("${label}") input`, value);
    await page.press(`.bar label:has-text("${label}") input`, "Tab");
  };
  const important = infos[0].map((head) => head.importance).sort((a, b) => a - b)[3];
  await fill("importance", String(important));
  assert.equal(await page.locator(".card").count(), passing((head) => head.importance >= important));
  await fill("importance", "");
  const few = infos[1].map((head) => head.open_edges_per_query).sort((a, b) => a - b)[2];
  await fill("edges", String(few));
  assert.equal(await page.locator(".card").count(), passing((head) => head.open_edges_per_query <= few));
  await fill("edges", "");
  // Arrows walk over the heads: right, then down to the next layer.
  await page.locator('.card[data-head="L0H0"]').focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.head), "L1H1");
  await page.selectOption('.bar label:has-text("sort by") select', "importance");
  const order = await page.locator(".card").evaluateAll((cards) => cards.map((card) => card.dataset.head));
  const sorted = [...frame.header.models[1].heads].sort((a, b) => b.importance - a.importance).map((info) => info.head);
  assert.deepEqual(order, sorted);
  await page.locator("#map-size").fill("140");
  assert.equal(Math.round((await page.locator(".card canvas").first().boundingBox()).width), 140);

  await page.check('.bar label:has-text("stacked") input');
  assert.equal(await page.locator(".card .maps.above").count(), 6);
  await page.uncheck('.bar label:has-text("stacked") input');

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
  // Hovering over a token looks at it without choosing it, one head or all of them.
  await page.selectOption('.bar label:has-text("head") select', "L1H1");
  await page.locator('section:has(h2:text-is("gated")) .token[data-at="6"]').hover();
  await page.waitForSelector('section:has(h2:text-is("gated")) .token.looked[data-at="6"]');
  await until(page, () => !document.querySelector("#tip").hidden);
  const [most, mostAt] = largestOf(frame.array("maps.1").slice((4 * T + 6) * T, (4 * T + 7) * T));
  const shownTip = await page.textContent("#tip");
  if (most > 0) assert.ok(shownTip.includes(`(${mostAt}) ${most.toFixed(3)}`), `${shownTip} has ${most} of ${mostAt}`);
  assert.match(page.url(), /at=4/);
  await page.mouse.move(0, 0);
  await page.waitForSelector('.token.chosen[data-at="4"]');
  await page.selectOption('.bar label:has-text("head") select', "");
  await page.waitForSelector(".arcs path");
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
  // Many heads: a layer, then all of the other model.
  await page.click('nav [data-view="ablate"]');
  await after(page, () => page.locator('section:has(h2:text-is("dense")) button:text-is("layer 1")').click());
  assert.equal(await page.locator('button[data-model="0"][aria-pressed="true"]').count(), 3);
  await after(page, () => page.locator('section:has(h2:text-is("dense")) button:text-is("all off")').click());
  assert.equal(await page.locator('button[data-model="0"][aria-pressed="true"]').count(), 6);
  const none = await ask(address, "api/run", { prompt, ablate: [frame.header.models[0].heads.map((head) => head.head), ["L0H1"]] });
  assert.ok((await page.textContent("main")).includes(`6 of 6 heads off. Loss ${none.header.models[0].loss.toFixed(3)}`));
  // Without results the other views say how to get some.
  for (const view of ["circuit", "scatter"]) {
    await page.click(`nav [data-view="${view}"]`);
    assert.match(await page.textContent("main"), /--results DIR/);
  }

  // The address is the view.
  const shared = await browser.newPage({ viewport: { width: 1366, height: 768 } });
  const sharedTrouble = watch(shared, address);
  await shared.goto(page.url().replace("view=scatter", "view=ablate"));
  await ran(shared, 0);
  assert.equal(await shared.locator('button[data-model="1"][aria-pressed="true"]').count(), 1);
  assert.equal(await shared.inputValue("#prompt"), prompt);
  assert.deepEqual(sharedTrouble, []);

  // A prompt that is too long is an error in words, and the page goes on.
  await page.click('nav [data-view="grid"]');
  assert.deepEqual(trouble, []);
  await page.fill("#prompt", "zyx ".repeat(100));
  await page.press("#prompt", "Enter");
  await page.waitForSelector("#status.bad");
  assert.match(await page.textContent("#status"), /the models take 48/);
  trouble.length = 0; // the browser itself reports the refusal, status 400
  // A task's example.
  const example = await page.locator("#examples option").nth(1).getAttribute("value");
  await after(page, () => page.selectOption("#examples", example));
  assert.equal(await page.inputValue("#prompt"), example);
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

// Files of `circuit --out` and `scatter --json`.
async function testResults(browser, results) {
  const { server, address } = await serve([join(folder, "induction/dense"), join(folder, "induction/sparse"), "--results", results]);
  try {
    const page = await browser.newPage({ viewport: { width: 1366, height: 768 } });
    const trouble = watch(page, address);
    await page.goto(`${address}#prompt=${digits}&view=circuit`);
    await ran(page, 0);
    await page.waitForSelector("main svg.circuit");
    const circuits = JSON.parse(readFileSync(join(results, "digits", "circuit.json"), "utf8")).models;
    const drawn = page.locator("main section");
    assert.equal(await drawn.count(), 2);
    for (const [m, circuit] of circuits.entries()) {
      const section = drawn.nth(m);
      assert.match(await section.textContent(), new RegExp(`${circuit.at_90} of 4 heads keep 90 %`));
      assert.equal(await section.locator("svg.circuit circle").count(), 4);
      assert.equal(await section.locator("svg.circuit rect").count(), 2);
      assert.equal(await section.locator("svg.circuit > path").count(), circuit.edges.edges_at_90.length);
      for (const { head, role } of circuit.heads.slice(0, circuit.at_90)) assert.ok((await section.textContent()).includes(`${head}`) && role !== undefined);
    }
    await page.locator("main svg.circuit circle").first().hover();
    assert.match(await page.textContent("#tip"), /% of the effect/);
    await page.mouse.move(0, 0);
    await shot(page, "circuit");
    // A head of the circuit opens in large.
    await page.locator("main svg.circuit circle").first().click();
    await page.waitForSelector("dialog[open] canvas[data-big]");
    await page.keyboard.press("Escape");

    // All but the circuit off: the prediction stays; a head of the circuit off: it goes.
    await page.click('nav [data-view="ablate"]');
    const best = (m) => page.locator(`[data-distribution="${m}"] .barcell`).first().textContent();
    assert.equal(await best(1), "“4”");
    const sparse = page.locator('section:has(h2:text-is("sparse"))');
    await after(page, () => sparse.locator('button:has-text("all but the circuit of digits")').click());
    assert.equal(await sparse.locator('button[aria-pressed="true"]').count(), 4 - circuits[1].at_90);
    assert.equal(await best(1), "“4”");
    await after(page, () => page.click('button[data-head="L1H1"][data-model="1"]'));
    assert.notEqual(await best(1), "“4”");
    await shot(page, "ablate-circuit");

    await page.click('nav [data-view="scatter"]');
    await page.selectOption("main select", { label: "points" });
    await page.waitForSelector("canvas.cloud");
    assert.equal(await page.locator("canvas.cloud").count(), 2 * 3); // below the diagonals
    const dark = (selector) => page.evaluate((sel) => [...document.querySelectorAll(sel)].map((canvas) =>
      canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.filter((value, i) => i % 4 === 3 && value > 0).length), selector);
    assert.ok((await dark("canvas.cloud")).every((count) => count > 20), "clouds have dots");
    const scatter = JSON.parse(readFileSync(join(results, "points.json"), "utf8"));
    assert.ok((await page.textContent("main")).includes(`r ${scatter.sections[1].cells[0].pearson.toFixed(3).replace("-", "−")}`));
    await shot(page, "scatter");
    await page.selectOption("main select", { label: "counts" });
    await until(page, () => document.querySelectorAll("canvas.cloud").length === 1);
    assert.ok((await dark("canvas.cloud"))[0] > 20, "bins are drawn");
    await page.selectOption("main select", { label: "correlations" });
    await page.waitForSelector("canvas.matrix");
    await shot(page, "correlations");
    assert.deepEqual(trouble, []);
    await page.close();
  } finally {
    server.kill("SIGKILL");
  }
}

// As many heads as two GPT-2s have, and a prompt of nearly 512 tokens: reduced maps in the grid, whole ones on demand.
async function testLong(browser) {
  const { server, address } = await serve([join(folder, "many-dense"), join(folder, "many-gated")]);
  try {
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
    const spent = await processorTime(page), spentBefore = await spent();
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
    const perFrame = (1000 * (await spent() - spentBefore)) / 60;
    console.log(`scrolling: ${frames[30].toFixed(1)} ms a frame in the median, ${frames[56].toFixed(1)} ms in the worst twentieth; ${perFrame.toFixed(1)} ms of processor time a frame`);
    assert.ok(perFrame < 33, `${perFrame} ms of processor time a frame`);
    await shot(page, "long-grid", false);

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
    await shot(page, "long-head", false);
    await page.keyboard.press("Escape");
    await page.click('nav [data-view="tokens"]');
    await page.waitForSelector(".token.chosen");
    await shot(page, "long-tokens", false);
    assert.deepEqual(trouble, []);
    await page.close();
  } finally {
    server.kill("SIGKILL");
  }
}

async function testReport(browser, results) {
  const file = join(folder, "report.html"), models = [join(folder, "induction/dense"), join(folder, "induction/sparse")];
  execFileSync(program, ["report", ...models, "--prompt", digits, "--prompt", "1234567", "--results", results, "--out", file]);
  console.log(`report ${(statSync(file).size / 1e6).toFixed(2)} MB`);
  const context = await browser.newContext({ offline: true, viewport: { width: 1366, height: 768 } });
  const page = await context.newPage();
  const url = pathToFileURL(file).href;
  const trouble = watch(page, url);
  await page.goto(url);
  await ran(page, 0);
  const { server, address } = await serve(models);
  const off = await ask(address, "api/run", { prompt: digits, ablate: [[], ["L1H1"]] });
  checkPixels(await pixelsOf(page, ".card canvas"), await ask(address, "api/run", { prompt: digits }));
  server.kill("SIGKILL");
  await shot(page, "report");
  await page.click('.card[data-head="L1H0"]');
  await page.waitForSelector("dialog[open] canvas[data-big]");
  await page.keyboard.press("Escape");

  // Heads can be switched off here too: what the server would say, without one.
  await page.click('nav [data-view="ablate"]');
  assert.match(await page.textContent("main"), /This file holds the predictions/);
  const best = () => page.locator('[data-distribution="1"] .barcell').first().textContent();
  const held = (count) => page.locator('button[data-model="1"][aria-pressed="true"]').count().then((seen) => assert.equal(seen, count));
  assert.equal(await best(), "“4”");
  await after(page, () => page.click('button[data-head="L1H1"][data-model="1"]'));
  assert.notEqual(await best(), "“4”");
  const expected = off.header.models[1];
  const text = await page.textContent("main");
  assert.ok(text.includes(`1 of 4 heads off. Loss ${expected.loss.toFixed(3)}`), text);
  assert.equal(await best(), `“${expected.predictions.at(-1).likeliest[0].token}”`);
  await shot(page, "report-ablate");
  await after(page, () => page.click('button[data-head="L0H1"][data-model="1"]')); // in the place of the other
  await held(1);
  await after(page, () => page.locator('section:has(h2:text-is("sparse")) button:has-text("all but the circuit")').click());
  await held(2);
  assert.equal(await best(), "“4”");
  // An address with heads that the file does not hold: said in words, and the page is there.
  const odd = await context.newPage();
  odd.setDefaultTimeout(patience);
  await odd.goto(`${url}#view=ablate&off1=L0H0,L1H1`);
  await odd.waitForSelector("#status.bad");
  assert.match(await odd.textContent("#status"), /clearhead serve/);
  await odd.waitForSelector("button[data-head]");
  await odd.close();

  for (const view of ["tokens", "predictions", "circuit", "scatter"]) await page.click(`nav [data-view="${view}"]`);
  await page.waitForSelector("main section h2");
  await after(page, () => page.selectOption("#examples", "1234567"));
  assert.equal(await page.inputValue("#prompt"), "1234567");
  assert.deepEqual(trouble, []);
  await context.close();
}

let server, browser;
try {
  execFileSync(makeModels, [folder]);
  const served = await serve([join(folder, "dense"), join(folder, "gated")]);
  server = served.server;
  browser = await chromium.launch({ executablePath: chromiumPath, args: ["--no-sandbox", "--disable-gpu"] });
  const only = process.argv[7];
  if (only === undefined) {
    const results = writeResults();
    await testServed(browser, served.address);
    await testResults(browser, results);
    await testLong(browser);
    await testReport(browser, results);
  }
  if (only !== "lens") await testFeaturesAndTraces(browser);
  if (only !== "features") await testLensAndCuts(browser);
  // Ctrl-C ends it at once.
  const ended = new Promise((done) => server.on("exit", done));
  const began = Date.now();
  server.kill("SIGINT");
  await ended;
  assert.ok(Date.now() - began < 5000); // it takes milliseconds; the machine may be busy
  console.log("passed");
} finally {
  await browser?.close();
  server?.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}
