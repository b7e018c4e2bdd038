// SPDX-License-Identifier: MIT
// The Lens view, and edges that are cut by a click in a head's map; served and in a report.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ask, folder, program, ran, serve, shot, until, watch } from "./support.mjs";

const digits = "03453"; // the induction pair goes on with 4: the last 3 reads what came after the first
const percent = (share) => (100 * share).toFixed(share < 0.0995 ? 2 : 1);
const visible = (token) => token.replaceAll(" ", "·").replaceAll("\n", "⏎");

async function checkLens(page, model, lens) {
  for (const [point, row] of lens.stream.entries()) {
    for (const [t, cell] of row.entries()) {
      const button = page.locator(`[data-lens="${model}"] [data-cell="${point} ${t}"]`);
      assert.equal(await button.textContent(), visible(cell.likeliest[0].token), `model ${model}, row ${point}, position ${t}`);
      const framed = await button.evaluate((element) => element.classList.contains("target"));
      assert.equal(framed, cell.likeliest[0].id === lens.targets[t].id);
    }
  }
  const shares = await page.locator(`[data-lens-heads="${model}"] [data-share]`).evaluateAll((rows) => rows.map((row) => Number(row.dataset.share)));
  const expected = lens.heads.map((head) => head.target_logit).sort((a, b) => Math.abs(b) - Math.abs(a)).slice(0, 12);
  assert.deepEqual(shares, expected);
}

async function testLens(page, address) {
  await page.goto(`${address}#prompt=${digits}&view=lens`);
  await ran(page, 0);
  const lenses = [];
  for (const m of [0, 1]) {
    await page.waitForSelector(`[data-lens="${m}"]`);
    lenses.push((await ask(address, "api/lens", { prompt: digits, model: m, likeliest: 5 })).header);
    await checkLens(page, m, lenses[m]);
    // The last row is the model: it goes on with 4.
    assert.equal(await page.locator(`[data-lens="${m}"] [data-cell="${lenses[m].stream.length - 1} 4"]`).textContent(), "4");
  }
  const cell = lenses[1].stream[1][2];
  await page.locator('[data-lens="1"] [data-cell="1 2"]').hover();
  const tip = await page.textContent("#tip");
  assert.ok(tip.startsWith("layer 0, after") && tip.includes(`${percent(cell.likeliest[0].probability)} %`), tip);
  await page.mouse.move(0, 0);
  await shot(page, "lens");

  // Another position: heads there.
  await page.locator('[data-lens="1"] [data-cell="2 3"]').click();
  await until(page, () => location.hash.includes("at=3") && document.querySelectorAll('td.chosen [data-cell="0 3"]').length === 2);
  await until(page, () => document.querySelectorAll("[data-lens-heads]").length === 2);
  await checkLens(page, 1, (await ask(address, "api/lens", { prompt: digits, model: 1, position: 3, likeliest: 5 })).header);
  // A token that is followed.
  await page.fill("[data-towards]", "7");
  await page.press("[data-towards]", "Enter");
  await until(page, () => [...document.querySelectorAll("[data-lens-heads] th:nth-child(2)")].filter((th) => th.textContent === "on “7”").length === 2);
  await checkLens(page, 0, (await ask(address, "api/lens", { prompt: digits, model: 0, position: 3, likeliest: 5, target: "7" })).header);
  await page.fill("[data-towards]", "77777");
  await page.press("[data-towards]", "Enter");
  await page.waitForSelector('main p.up:has-text("it must be one")');
  await page.fill("[data-towards]", "");
  await page.press("[data-towards]", "Enter");
  // A head of the list opens in large.
  await page.waitForSelector("[data-lens-head]");
  await page.locator("[data-lens-head]").first().click();
  await page.waitForSelector("dialog[open] canvas[data-big]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog:not([open])", { state: "attached" });
}

async function clickCell(page, model, T, query, key) {
  const box = await page.locator(`canvas[data-big="${model}"]`).boundingBox();
  await page.mouse.click(box.x + ((key + 0.5) / T) * box.width, box.y + ((query + 0.5) / T) * box.height);
}

async function testCuts(page, address) {
  await page.goto(`${address}#prompt=${digits}&head=L1H1`);
  await page.reload(); // another hash alone does not load anew
  await ran(page, 0);
  await page.waitForSelector("dialog[open] canvas[data-big]");
  assert.match(await page.textContent("dialog"), /Click a cell of a map to cut that edge/);
  await clickCell(page, 1, 5, 4, 2);
  await page.waitForSelector('[data-cut-outcome="1"] [data-change]');
  const cut = [{ head: "L1H1", query: 4, key: 2 }];
  const changed = (await ask(address, "api/changed", { prompt: digits, model: 1, cut, likeliest: 25 })).header;
  const text = await page.textContent("dialog");
  assert.ok(text.includes(`Loss of the prompt ${changed.before.loss.toFixed(3)} → ${changed.after.loss.toFixed(3)}`), text);
  assert.ok(text.includes("sparse without 1 edge") && text.includes("L1H1:4<-2"), text);
  const [was, now] = [changed.before, changed.after].map(({ predictions }) => predictions[4].likeliest.find(({ token }) => token === "4")?.probability ?? 0);
  assert.ok(was > 0.5 && now < was / 2, `4 was expected with ${was}, and without the edge with ${now}`);
  assert.match(await page.textContent('[data-cut-outcome="1"] [data-change]'), new RegExp(`“4”: ${percent(was)} % → `));
  assert.equal(await page.locator(".cut-mark").count(), 1);
  assert.match(page.url(), /cut1=L1H1\.4\.2/);
  await page.mouse.move(0, 0);
  await shot(page, "head-cut");
  // A second edge in the other model; then the first one is restored by a click on it again, the other by its name.
  await clickCell(page, 0, 5, 3, 1);
  await page.waitForSelector('[data-cut-outcome="0"]');
  await clickCell(page, 1, 5, 4, 2);
  await until(page, () => document.querySelectorAll('[data-cut-outcome="1"]').length === 0);
  await page.click('dialog button[data-cut="L1H1 3 1"]');
  await until(page, () => document.querySelectorAll("[data-cut-outcome], .cut-mark").length === 0);
  // Above the diagonal is no edge.
  await clickCell(page, 1, 5, 1, 3);
  assert.equal(await page.locator(".cut-mark").count(), 0);
  // The address is the view; cuts of another prompt are gone.
  await page.goto(`${address}#prompt=${digits}&head=L1H1&cut1=L1H1.4.2,L0H0.1.0`);
  await page.reload();
  await page.waitForSelector('[data-cut-outcome="1"] [data-change]');
  assert.match(await page.textContent("dialog"), /sparse without 2 edges/);
  await page.click('dialog button[data-restore="1"]');
  await until(page, () => !location.hash.includes("cut1"));
  await page.keyboard.press("Escape");
}

async function testReport(browser, models) {
  const file = join(folder, "lens-report.html");
  execFileSync(program, ["report", ...models, "--prompt", digits, "--out", file]);
  const context = await browser.newContext({ offline: true, viewport: { width: 1366, height: 768 } });
  const page = await context.newPage();
  const url = pathToFileURL(file).href, trouble = watch(page, url);
  await page.goto(`${url}#view=lens`);
  await ran(page, 0);
  await page.waitForSelector('[data-lens="1"]');
  assert.equal(await page.locator('[data-lens="1"] [data-cell="2 4"]').textContent(), "4");
  await page.locator('[data-lens="1"] [data-cell="0 1"]').click();
  await page.waitForSelector('main p:has-text("after the last token only")');
  // A run without an edge needs the model.
  await page.goto(`${url}#head=L1H1`);
  await page.reload();
  await page.waitForSelector("dialog[open] canvas[data-big]");
  await clickCell(page, 1, 5, 4, 2);
  await page.waitForSelector('dialog p.up:has-text("clearhead serve")');
  assert.deepEqual(trouble, []);
  await context.close();
}

export async function testLensAndCuts(browser) {
  const models = [join(folder, "induction/dense"), join(folder, "induction/sparse")];
  const { server, address } = await serve(models);
  try {
    const page = await browser.newPage({ viewport: { width: 1366, height: 768 } });
    const trouble = watch(page, address);
    await testLens(page, address);
    await testCuts(page, address);
    // The browser itself reports the refusal of a target that is no token.
    assert.deepEqual(trouble.filter((line) => !line.includes("400")), []);
    await page.close();
  } finally {
    server.kill("SIGKILL");
  }
  await testReport(browser, models);
}
