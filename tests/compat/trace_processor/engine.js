// Perfetto's trace processor as the Perfetto UI ships it: engine_bundle.js, which is a web worker, and the WebAssembly beside it.
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

/// The part of XMLHttpRequest by which the worker reads its WebAssembly file.
function fileRequest(folder) {
  return class {
    open(method, name) {
      this.name = path.join(folder, path.basename(name));
    }
    send() {
      const bytes = fs.readFileSync(this.name);
      this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    }
  };
}

/// Starts the worker of `bundle`. Resolves to a function that takes the bytes of a request stream and returns those of the answer.
/// It is called for one request at a time; the engine answers before it returns.
exports.load = async (bundle) => {
  const worker = {location: {href: "file://" + path.resolve(bundle)}};
  // The names that make Emscripten's loader take this for a worker and not for node, which the UI's build does not know.
  const around = {
    self: worker,
    WorkerGlobalScope: class {},
    XMLHttpRequest: fileRequest(path.dirname(bundle)),
    process: undefined,
    console: {log: console.error, warn: console.error, error: console.error},
  };
  const source = fs.readFileSync(bundle, "utf8");
  vm.compileFunction(source, Object.keys(around), {filename: bundle})(...Object.values(around));

  let answer = [];
  const port = {postMessage: (bytes) => answer.push(Buffer.from(bytes))};
  worker.onmessage({data: port});
  await new Promise((resolve) => setImmediate(resolve));  // the worker sets its buffers up in a continuation
  return (bytes) => {
    answer = [];
    port.onmessage({data: new Uint8Array(bytes)});
    return Buffer.concat(answer);
  };
};
