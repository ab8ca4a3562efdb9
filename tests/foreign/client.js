// Prompts a Yarrow service over its socket and prints each event as one JSON line; knows the .proto file alone.
// usage: node client.js PROTO_DIR unix:SOCKET '{"text": ..., "cwd": ...}'
"use strict";
const fs = require("fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [protoDir, address, request] = process.argv.slice(2);
const definition = loader.loadSync("yarrow/v1/agent.proto", { includeDirs: [protoDir], longs: String, enums: String, oneofs: true });
const { AgentService } = grpc.loadPackageDefinition(definition).yarrow.v1;
const client = new AgentService(address, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${fs.readFileSync(`${address.slice("unix:".length)}.token`, "utf8").trim()}`);

let sessionId = "";
const call = client.Prompt(JSON.parse(request), metadata);
call.on("data", ({ event }) => {
  sessionId = event.sessionId;
  console.log(JSON.stringify(event));
});
call.on("error", (error) => {
  console.log(JSON.stringify({ status: error.code, details: error.details }));
  process.exitCode = 1;
  client.close();
});
call.on("end", () => {
  client.GetMessages({ sessionId }, metadata, (error, response) => {
    console.log(JSON.stringify(error ? { status: error.code } : { messages: response.messages }));
    client.close();
  });
});
