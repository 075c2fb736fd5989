// Builds at each change, and serves the pages at http://127.0.0.1:5170/ui/ with the data of a host (MILLRACE_HOST).
import { context } from "esbuild";
import http from "node:http";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { DIST, options, write } from "./build.mjs";

const [host, port] = (process.env.MILLRACE_HOST ?? "127.0.0.1:7070").split(":");
const listen = Number(process.env.PORT ?? 5170);
const writes = {
  name: "write",
  setup: (b) => b.onEnd((result) => (result.metafile ? write(result).then(() => console.log("built")) : undefined)),
};
const watched = await context({ ...options, minify: false, plugins: [writes] });
await watched.watch();

const KINDS = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css" };
// The host's own policy, so that a page that breaks it is noticed here.
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types millrace";

http
  .createServer(async (request, answer) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (!pathname.startsWith("/ui")) {
      // The host takes its own pages only for its own; this server stands in for it.
      const { origin: _, ...headers } = request.headers;
      const asked = http.request(
        { host, port, path: request.url, method: request.method, headers: { ...headers, host: `${host}:${port}` } },
        (got) => {
          answer.writeHead(got.statusCode, got.headers);
          got.pipe(answer);
        },
      );
      asked.on("error", (error) => answer.writeHead(502).end(String(error)));
      answer.on("close", () => asked.destroy());
      request.pipe(asked);
      return;
    }
    const name = pathname.startsWith("/ui/@/") ? pathname.slice("/ui/".length) : "index.html";
    const file = path.join(DIST, path.normalize(name));
    try {
      answer.writeHead(200, {
        "content-type": KINDS[path.extname(file)] ?? "text/plain",
        "content-security-policy": POLICY,
        "cache-control": "no-cache",
      });
      answer.end(await readFile(file));
    } catch {
      answer.end();
    }
  })
  .listen(listen, "127.0.0.1", () => console.log(`http://127.0.0.1:${listen}/ui/ with the data of ${host}:${port}`));
