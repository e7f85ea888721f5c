// What programs expect beside the language: console, timers, require for fs and path, process. The functions that begin
// with two underscores are the host's.
(() => {
  "use strict";
  const host = { write: __write, read: __read, store: __store, list: __list, remove: __remove, mkdir: __mkdir, now: __now, exit: __exit, rejected: __rejected };
  for (const name of ["__write", "__read", "__store", "__list", "__remove", "__mkdir", "__now", "__exit", "__rejected"]) delete globalThis[name];

  const identifier = /^[A-Za-z_$][\w$]*$/;
  const quote = s => "'" + s.replace(/\\/g, "\\\\").replace(/'/g, "\\'").replace(/\n/g, "\\n") + "'";
  function inspect(v, depth = 0, seen = []) {
    switch (typeof v) {
      case "string": return depth === 0 ? v : quote(v);
      case "bigint": return v + "n";
      case "symbol": return v.toString();
      case "number": return Object.is(v, -0) ? "-0" : String(v);
      case "function": return (/^class\b/.test(Function.prototype.toString.call(v)) ? "[class " : "[Function: ") + (v.name || "(anonymous)") + "]";
      case "object": break;
      default: return String(v);
    }
    if (v === null) return "null";
    if (seen.includes(v)) return "[Circular]";
    if (v instanceof Error) return (v.stack ? String(v) + "\n" + String(v.stack).replace(/\n$/, "") : String(v));
    if (v instanceof Date) return isNaN(v) ? "Invalid Date" : v.toISOString();
    if (v instanceof RegExp) return String(v);
    if (v instanceof Promise) return "Promise { … }";
    const name = (Object.getPrototypeOf(v) && v.constructor && v.constructor.name) || "";
    if (depth > 4) return Array.isArray(v) ? "[Array]" : "[" + (name || "Object") + "]";
    seen = seen.concat([v]);
    const of = x => inspect(x, depth + 1, seen);
    const many = (list, most = 100) => list.length > most ? list.slice(0, most).concat(["… " + (list.length - most) + " more"]) : list;
    const wrap = (head, parts, open, close) => {
      if (parts.length === 0) return head + open + close;
      const line = head + open + " " + parts.join(", ") + " " + close;
      if (line.length <= 100 && !line.includes("\n")) return line;
      return head + open + "\n" + parts.map(p => "  " + p.replace(/\n/g, "\n  ")).join(",\n") + "\n" + close;
    };
    if (Array.isArray(v)) return wrap("", many(v.map(of)), "[", "]");
    if (v instanceof Map) return wrap("Map(" + v.size + ") ", many([...v].map(([k, x]) => inspect(k, depth + 1, seen) + " => " + of(x))), "{", "}");
    if (v instanceof Set) return wrap("Set(" + v.size + ") ", many([...v].map(of)), "{", "}");
    if (ArrayBuffer.isView(v) && !(v instanceof DataView)) return wrap(name + "(" + v.length + ") ", many(Array.from(v, of)), "[", "]");
    const parts = Object.keys(v).map(k => (identifier.test(k) ? k : quote(k)) + ": " + of(v[k]));
    return wrap(name && name !== "Object" ? name + " " : "", many(parts), "{", "}");
  }
  function format(...args) {
    if (typeof args[0] === "string" && args[0].includes("%")) {
      let i = 1;
      const head = args[0].replace(/%[sdifjoO%]/g, m => {
        if (m === "%%") return "%";
        if (i >= args.length) return m;
        const a = args[i++];
        switch (m) {
          case "%s": return typeof a === "string" ? a : inspect(a, 1);
          case "%d": return String(Number(a));
          case "%i": return String(parseInt(a));
          case "%f": return String(parseFloat(a));
          case "%j": return JSON.stringify(a);
          default: return inspect(a, 1);
        }
      });
      args = [head].concat(args.slice(i));
    }
    return args.map(a => inspect(a)).join(" ");
  }

  let indent = "";
  const say = to => (...args) => { host.write(to, indent + format(...args).replace(/\n/g, "\n" + indent) + "\n"); };
  const counts = new Map(), times = new Map();
  const console = {
    log: say(1), info: say(1), debug: say(1), dir: v => say(1)(inspect(v, 1)), warn: say(2), error: say(2), trace: say(2),
    assert: (ok, ...args) => { if (!ok) console.error("Assertion failed" + (args.length ? ":" : ""), ...args); },
    group: (...args) => { if (args.length) console.log(...args); indent += "  "; },
    groupEnd: () => { indent = indent.slice(2); },
    count: (l = "default") => { counts.set(l, (counts.get(l) || 0) + 1); console.log(l + ": " + counts.get(l)); },
    time: (l = "default") => { times.set(l, host.now()); },
    timeEnd: (l = "default") => { console.log(l + ": " + (host.now() - times.get(l)).toFixed(3) + "ms"); times.delete(l); },
    table: rows => {
      if (rows === null || typeof rows !== "object") return console.log(rows);
      for (const k of Object.keys(rows)) console.log(k + "\t" + (rows[k] && typeof rows[k] === "object" ? Object.keys(rows[k]).map(c => c + "=" + inspect(rows[k][c], 1)).join("\t") : inspect(rows[k], 1)));
    },
  };
  console.groupCollapsed = console.group;

  let timers = [], lastTimer = 0;
  const later = (f, ms, args, every) => {
    if (typeof f !== "function") throw new TypeError("a timer needs a function");
    ms = Math.max(0, Number(ms) || 0);
    timers.push({ id: ++lastTimer, at: host.now() + ms, f, args, every: every ? Math.max(1, ms) : 0 });
    return lastTimer;
  };
  const clear = id => { timers = timers.filter(t => t.id !== id); };
  // turn fires the timer that is due and gives the milliseconds until the next one, below zero where there is none.
  const turn = () => {
    if (timers.length === 0) return -1;
    let next = timers[0];
    for (const t of timers) if (t.at < next.at) next = t;
    const wait = next.at - host.now();
    if (wait > 0) return wait;
    if (next.every) next.at = host.now() + next.every;
    else timers = timers.filter(t => t !== next);
    next.f(...next.args);
    return 0;
  };
  // watch tells of a program that ended in a rejected promise: its own, or that of its last line.
  const watch = v => {
    const fail = e => host.rejected("Uncaught " + (e instanceof Error ? inspect(e) : inspect(e, 1)));
    const last = x => { if (x && x.value instanceof Promise) x.value.then(() => {}, fail); };
    if (v instanceof Promise) v.then(last, fail);
  };

  const hexOf = b => { const out = []; for (let i = 0; i < b.length; i++) out.push((b[i] < 16 ? "0" : "") + b[i].toString(16)); return out.join(""); };
  const bytesOf = h => { const b = new Uint8Array(h.length / 2); for (let i = 0; i < b.length; i++) b[i] = parseInt(h.substr(2 * i, 2), 16); return b; };
  const encoding = o => (typeof o === "string" ? o : o && o.encoding) || "";
  const store = mode => (path, data) => {
    if (data instanceof ArrayBuffer) data = new Uint8Array(data);
    if (ArrayBuffer.isView(data)) host.store(String(path), hexOf(new Uint8Array(data.buffer, data.byteOffset, data.byteLength)), "hex", mode);
    else host.store(String(path), String(data), "text", mode);
  };
  const fs = {
    readFileSync: (path, o) => encoding(o) ? host.read(String(path), "text") : bytesOf(host.read(String(path), "hex")),
    writeFileSync: store("write"), appendFileSync: store("append"),
    readdirSync: path => { const l = host.list(String(path)); return l === "" ? [] : l.split("\n").map(n => n.replace(/\/$/, "")); },
    existsSync: path => { try { host.list(String(path)); return true; } catch { try { host.read(String(path), "hex"); return true; } catch { return false; } } },
    mkdirSync: (path, o) => { host.mkdir(String(path), o && o.recursive ? "all" : ""); },
    unlinkSync: path => { host.remove(String(path), ""); },
    rmSync: (path, o) => { host.remove(String(path), o && o.recursive ? "all" : ""); },
  };
  fs.promises = {};
  for (const name of ["readFile", "writeFile", "appendFile", "readdir", "mkdir", "unlink", "rm"]) {
    fs.promises[name] = async (...args) => fs[name + "Sync"](...args);
    fs[name] = (...args) => {
      const done = args.pop();
      let value, error = null;
      try { value = fs[name + "Sync"](...args); } catch (e) { error = e; }
      later(done, 0, [error, value], false);
    };
  }
  const path = {
    sep: "/",
    join: (...parts) => {
      const out = [];
      const whole = parts.filter(p => p !== "").join("/");
      for (const p of whole.split("/")) { if (p === "" || p === ".") continue; if (p === ".." && out.length && out[out.length - 1] !== "..") out.pop(); else out.push(p); }
      return (whole.startsWith("/") ? "/" : "") + out.join("/") || ".";
    },
    basename: (p, ext = "") => { const b = p.replace(/\/+$/, "").split("/").pop(); return ext && b.endsWith(ext) ? b.slice(0, -ext.length) : b; },
    dirname: p => p.replace(/\/+$/, "").split("/").slice(0, -1).join("/") || (p.startsWith("/") ? "/" : "."),
    extname: p => { const b = p.split("/").pop(), i = b.lastIndexOf("."); return i > 0 ? b.slice(i) : ""; },
  };
  path.resolve = (...parts) => path.join(...(parts.join("/").startsWith("/") ? parts : ["/tmp", ...parts]));
  const process = {
    argv: ["node", "/tmp/main.js"], env: {}, platform: "linux", pid: 1, version: "v0.0.0", versions: {}, exitCode: undefined,
    exit: code => { host.exit(code === undefined ? process.exitCode || 0 : Number(code)); throw new Error("exit"); },
    cwd: () => "/tmp", hrtime: () => { const t = host.now(); return [Math.floor(t / 1e3), Math.floor(t % 1e3 * 1e6)]; },
    nextTick: (f, ...args) => { Promise.resolve().then(() => f(...args)); }, on: () => process, uptime: () => host.now() / 1e3,
    stdout: { write: s => { host.write(1, String(s)); return true; } }, stderr: { write: s => { host.write(2, String(s)); return true; } },
    memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0 }),
  };
  const same = (a, b) => {
    if (Object.is(a, b)) return true;
    if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
    if (a instanceof Date) return a.getTime() === b.getTime();
    if (a instanceof Map || a instanceof Set) return same([...a], [...b]);
    const keys = Object.keys(a);
    return keys.length === Object.keys(b).length && keys.every(k => same(a[k], b[k]));
  };
  const demand = (ok, message, text) => { if (!ok) { const e = message instanceof Error ? message : new Error(message || text); if (!(message instanceof Error)) e.name = "AssertionError"; throw e; } };
  const assert = (v, m) => demand(v, m, "the value is not true");
  Object.assign(assert, {
    ok: assert, equal: (a, b, m) => demand(a == b, m, inspect(a, 1) + " != " + inspect(b, 1)),
    strictEqual: (a, b, m) => demand(Object.is(a, b), m, inspect(a, 1) + " !== " + inspect(b, 1)),
    notStrictEqual: (a, b, m) => demand(!Object.is(a, b), m, inspect(a, 1) + " === " + inspect(b, 1)),
    deepStrictEqual: (a, b, m) => demand(same(a, b), m, inspect(a, 1) + " is not like " + inspect(b, 1)),
    throws: (f, m) => { try { f(); } catch { return; } demand(false, m, "nothing was thrown"); },
  });
  assert.deepEqual = assert.deepStrictEqual;
  const util = { inspect: v => inspect(v, 1), format };
  const modules = { fs, path, process, assert, util, "fs/promises": fs.promises };
  const require = name => {
    const m = modules[String(name).replace(/^node:/, "")];
    if (!m) throw new Error("Cannot find module '" + name + "': only fs, path, util, assert and process can be required");
    return m;
  };

  const globals = {
    console, require, process, global: globalThis, print: console.log, module: { exports: {} }, exports: {},
    setTimeout: (f, ms, ...args) => later(f, ms, args, false), setInterval: (f, ms, ...args) => later(f, ms, args, true),
    setImmediate: (f, ...args) => later(f, 0, args, false), clearTimeout: clear, clearInterval: clear, clearImmediate: clear,
    queueMicrotask: f => { Promise.resolve().then(f); }, structuredClone: clone,
    performance: { now: () => host.now(), timeOrigin: host.now() },
  };
  function clone(v, seen = new Map()) {
    if (typeof v === "function" || typeof v === "symbol") throw new TypeError("a " + typeof v + " cannot be cloned");
    if (typeof v !== "object" || v === null) return v;
    if (seen.has(v)) return seen.get(v);
    if (v instanceof Date) return new Date(v);
    if (v instanceof RegExp) return new RegExp(v);
    if (ArrayBuffer.isView(v) || v instanceof ArrayBuffer) return v.slice();
    let out;
    if (v instanceof Map) { seen.set(v, out = new Map()); for (const [k, x] of v) out.set(clone(k, seen), clone(x, seen)); return out; }
    if (v instanceof Set) { seen.set(v, out = new Set()); for (const x of v) out.add(clone(x, seen)); return out; }
    seen.set(v, out = Array.isArray(v) ? [] : v instanceof Error ? new v.constructor(v.message) : {});
    for (const k of Object.keys(v)) out[k] = clone(v[k], seen);
    return out;
  }
  for (const name of Object.keys(globals)) Object.defineProperty(globalThis, name, { value: globals[name], writable: true, configurable: true, enumerable: false });
  for (const [name, value] of [["__turn", turn], ["__watch", watch]]) Object.defineProperty(globalThis, name, { value, enumerable: false });
})();
