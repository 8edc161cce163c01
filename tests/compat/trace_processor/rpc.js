// Requests and answers of Perfetto's trace processor: the messages of its protos/perfetto/trace_processor/trace_processor.proto.
// What they carry (queries, results) stays closed here: bytes from the client to the engine and back.
"use strict";

// Paths of the trace processor's HTTP interface (trace_processor_shell server http): method, the request's field that takes the
// body, the answer's field that makes the response.
exports.methods = {
  "/status": {method: 10, answer: 210},
  "/parse": {method: 1, request: 101, answer: 201},
  "/notify_eof": {method: 2, answer: 212},
  "/query": {method: 3, request: 103, answer: 203},
  "/compute_metric": {method: 5, request: 105, answer: 205},
  "/trace_summary": {method: 15, request: 110, answer: 214},
};

const kSeq = 1, kRequest = 2, kInvalidRequest = 4, kFatalError = 5;
const kVarint = 0, kBytes = 2;

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

function numberField(number, value) {
  return Buffer.concat([varint(number * 8 + kVarint), varint(value)]);
}

function bytesField(number, bytes) {
  return Buffer.concat([varint(number * 8 + kBytes), varint(bytes.length), bytes]);
}

/// The fields of a message: [number, value], a value being a number or the bytes.
function* fieldsOf(message) {
  let at = 0;
  const readVarint = () => {
    let value = 0, scale = 1;
    for (;; scale *= 128) {
      if (at >= message.length) throw new Error("the engine's answer is cut short");
      const byte = message[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = readVarint();
    const number = Math.floor(tag / 8), type = tag % 8;
    if (type !== kVarint && type !== kBytes) throw new Error(`wire type ${type} in the engine's answer`);
    if (type === kVarint) {
      yield [number, readVarint()];
    } else {
      const length = readVarint();
      if (at + length > message.length) throw new Error("the engine's answer is cut short");
      yield [number, message.subarray(at, at + length)];
      at += length;
    }
  }
}

/// A TraceProcessorRpcStream with one request. `seq` counts from 1 and must not skip a number.
exports.encode = (call, seq, body) => {
  const fields = [numberField(kSeq, seq), numberField(kRequest, call.method)];
  if (call.request) fields.push(bytesField(call.request, body));
  return bytesField(1, Buffer.concat(fields));
};

/// What `stream`, all the engine said to one request, answers. A result in several messages is one result: protobuf merges messages
/// that follow each other.
exports.decode = (call, stream) => {
  const results = [];
  for (const [, message] of fieldsOf(stream)) {
    for (const [number, value] of fieldsOf(message)) {
      if (number === kFatalError) throw new Error(value.toString());
      if (number === kInvalidRequest) throw new Error(`this engine has no method ${value}`);
      if (number === call.answer) results.push(value);
    }
  }
  return Buffer.concat(results);
};
