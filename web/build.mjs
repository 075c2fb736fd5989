// Builds the dashboard into dist/: one chunk per screen, with hashes in the names, so that browsers keep them.
// `node build.mjs` builds once and prints the sizes; the crate `web` embeds what it finds.
import { build } from "esbuild";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import path from "node:path";

const ROOT = import.meta.dirname;
export const DIST = path.join(ROOT, "dist");
// What the crate `web` calls fixed: files whose names have a hash.
const FIXED = "@";

export const options = {
  absWorkingDir: ROOT,
  entryPoints: ["src/main.tsx", "src/style.css", "src/drawing/layout.ts", "src/icon.svg"],
  loader: { ".svg": "copy" },
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  metafile: true,
  legalComments: "none",
  charset: "utf8",
  outdir: "dist",
  entryNames: `${FIXED}/[name].[hash]`,
  chunkNames: `${FIXED}/[name].[hash]`,
  write: false,
};

/** The file that was built from an entry point, with everything that it needs at once. */
const built = (outputs, entry) => {
  const [name] = Object.entries(outputs).find(([, output]) => output.entryPoint === entry);
  const needs = (file) => outputs[file].imports.filter((i) => i.kind === "import-statement").flatMap((i) => [i.path, ...needs(i.path)]);
  return [name, ...new Set(needs(name))].map((file) => file.replace(/^dist\//, ""));
};

export const page = async (outputs) => {
  const [main, ...chunks] = built(outputs, "src/main.tsx");
  const [style] = built(outputs, "src/style.css");
  const [layout] = built(outputs, "src/drawing/layout.ts");
  const [icon] = Object.keys(outputs)
    .filter((name) => name.endsWith(".svg"))
    .map((name) => name.replace(/^dist\//, ""));
  const preload = chunks.map((chunk) => `<link rel="modulepreload" href="/ui/${chunk}">`).join("\n");
  const words = { MAIN: main, STYLE: style, LAYOUT: layout, ICON: icon, PRELOAD: preload };
  const text = await readFile(path.join(ROOT, "src/index.html"), "utf8");
  return text.replace(/\{([A-Z]+)\}/g, (whole, word) => words[word] ?? whole);
};

/** Writes what esbuild has built, and removes what an earlier build has left. */
export const write = async (result) => {
  const outputs = result.metafile.outputs;
  await rm(path.join(DIST, FIXED), { recursive: true, force: true });
  await mkdir(path.join(DIST, FIXED), { recursive: true });
  for (const file of result.outputFiles) await writeFile(file.path, file.contents);
  await writeFile(path.join(DIST, "index.html"), await page(outputs));
  return outputs;
};

const zipped = async (file) => gzipSync(await readFile(path.join(DIST, file)), { level: 9 }).length;

/** The sizes in bytes after gzip: of what the first screen needs, and of all. */
const sizes = async (outputs) => {
  const first = new Set([
    "index.html",
    ...["src/main.tsx", "src/style.css", "src/screens/overview.tsx"].flatMap((entry) => built(outputs, entry)),
  ]);
  const all = ["index.html", ...(await readdir(path.join(DIST, FIXED))).map((name) => `${FIXED}/${name}`)];
  const sum = async (files) => (await Promise.all([...files].map(zipped))).reduce((a, b) => a + b, 0);
  return { first: await sum(first), all: await sum(all) };
};

if (import.meta.filename === process.argv[1]) {
  const outputs = await write(await build(options));
  const { first, all } = await sizes(outputs);
  console.log(`dashboard: first screen ${(first / 1024).toFixed(1)} KB, all ${(all / 1024).toFixed(1)} KB (gzip)`);
  const [firstMax, allMax] = [60, 180];
  if (first > firstMax * 1024 || all > allMax * 1024) {
    console.error(`dashboard: the limits are ${firstMax} KB for the first screen and ${allMax} KB for all`);
    process.exit(1);
  }
}
