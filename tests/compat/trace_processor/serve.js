#!/usr/bin/env node
// Serves the trace processor of a Perfetto UI over HTTP, as `trace_processor_shell` does, for clients such as the Python package
// `perfetto`: serve.js FOLDER, where FOLDER holds engine_bundle.js. Prints the port, which the kernel chooses on the loopback
// interface, and ends when its stdin does.
"use strict";

const http = require("http");
const path = require("path");
const engine = require("./engine.js");
const rpc = require("./rpc.js");

async function main() {
  const ask = await engine.load(path.join(process.argv[2], "engine_bundle.js"));
  let seq = 0;

  const server = http.createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const call = rpc.methods[request.url];
      let status = 200, body;
      if (!call) {
        status = 404;
        body = Buffer.from(`${request.url} is not served here\n`);
      } else {
        try {
          body = rpc.decode(call, ask(rpc.encode(call, ++seq, Buffer.concat(parts))));
        } catch (error) {
          console.error(`${request.url}: ${error.stack}`);
          status = 500;
          body = Buffer.from(`${error.message}\n`);
        }
      }
      response.writeHead(status, {"Content-Type": "application/x-protobuf", "Content-Length": body.length});
      response.end(body);
    });
  });
  // A client may take its time between two queries, and sends its next one on the same connection.
  server.keepAliveTimeout = server.requestTimeout = server.headersTimeout = 0;
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
  process.stdin.on("end", () => process.exit(0)).resume();
}

main();
