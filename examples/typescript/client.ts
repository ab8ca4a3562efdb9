// Prompts a Yarrow service and prints the answer: node dist/client.js [--session ID] "the prompt"
// YARROW_ADDRESS is unix:PATH or HOST:PORT; YARROW_TOKEN_FILE and, for HOST:PORT, YARROW_CERTIFICATE are paths.
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { parseArgs } from "node:util";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { ProtoGrpcType } from "./generated/agent";
import type { AgentEvent__Output } from "./generated/yarrow/v1/AgentEvent";
import type { AgentServiceClient } from "./generated/yarrow/v1/AgentService";

const PROTO = path.join(__dirname, "../../../proto");
const SOCKET = path.join(os.homedir(), ".yarrow/run/yarrow.sock");
const address = process.env.YARROW_ADDRESS ?? `unix:${SOCKET}`;
const tokenFile = process.env.YARROW_TOKEN_FILE ?? `${address.replace(/^unix:/, "")}.token`;

function connect(): AgentServiceClient {
  const definition = loadSync("yarrow/v1/agent.proto", { includeDirs: [PROTO], longs: String, enums: String, oneofs: true });
  const { AgentService } = (grpc.loadPackageDefinition(definition) as unknown as ProtoGrpcType).yarrow.v1;
  if (address.startsWith("unix:")) return new AgentService(address, grpc.credentials.createInsecure());
  // A certificate created by the service has the name `yarrow`, whatever its address.
  const certificate = fs.readFileSync(process.env.YARROW_CERTIFICATE ?? "service.crt");
  return new AgentService(address, grpc.credentials.createSsl(certificate), { "grpc.ssl_target_name_override": "yarrow" });
}

function show(event: AgentEvent__Output): void {
  switch (event.event) {
    case "textDelta":
      process.stdout.write(event.textDelta?.text ?? "");
      break;
    case "toolCall":
      console.error(`[${event.toolCall?.name} ${event.toolCall?.argumentsJson}]`);
      break;
    case "messageEnd":
      process.stdout.write("\n");
      break;
    case "agentEnd":
      if (event.agentEnd?.error) console.error(`${event.agentEnd.error.code}: ${event.agentEnd.error.message}`);
      if (event.agentEnd?.reason !== "END_REASON_COMPLETED") process.exitCode = 1;
      console.error(`session ${event.sessionId}`);
      break;
  }
}

function main(): void {
  const { values, positionals } = parseArgs({ options: { session: { type: "string" } }, allowPositionals: true });
  const text = positionals.join(" ");
  if (!text) throw new Error('usage: npm start -- [--session ID] "the prompt"');
  const client = connect();
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${fs.readFileSync(tokenFile, "utf8").trim()}`);
  const sessionId = values.session ?? "";
  // Prompt would create a session that does not exist; fail instead.
  const begin = () => prompt(client, metadata, sessionId, text);
  if (sessionId) client.GetState({ sessionId }, metadata, (error) => (error ? failed(client, error) : begin()));
  else begin();
}

function failed(client: AgentServiceClient, error: grpc.ServiceError): void {
  console.error(`${grpc.status[error.code]}: ${error.details}`);
  process.exitCode = 1;
  client.close();
}

function prompt(client: AgentServiceClient, metadata: grpc.Metadata, sessionId: string, text: string): void {
  const request = { sessionId, text, cwd: process.cwd() };
  const call = client.Prompt({ ...request, options: { abortOnDisconnect: true } }, metadata);
  process.on("SIGINT", () => call.cancel());
  call.on("data", ({ event }) => event && show(event));
  call.on("error", (error: grpc.ServiceError) => failed(client, error));
  call.on("end", () => client.close());
}

try {
  main();
} catch (error) {
  console.error((error as Error).message); // an unknown flag, or an unreadable file
  process.exitCode = 1;
}
