// SPDX-License-Identifier: MIT
// Bundles the page into page/: page.html, page.js, page.css.
import { build } from "esbuild";
import { copyFile, mkdir, readFile } from "node:fs/promises";

await mkdir("page", { recursive: true });
// D3's licence asks that its words travel with every copy.
const license = await readFile("node_modules/d3/LICENSE", "utf8");
await build({
  entryPoints: { page: "src/main.ts" },
  banner: { js: `/* With parts of D3:\n${license.trim()}\n*/` },
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  legalComments: "none",
  charset: "ascii", // the report puts the script into a file that must survive any encoding
  outdir: "page",
});
await build({ entryPoints: { page: "src/page.css" }, minify: true, outdir: "page" });
await copyFile("src/page.html", "page/page.html");
