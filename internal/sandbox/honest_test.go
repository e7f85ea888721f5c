package sandbox_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hob/internal/sandbox"
)

func TestHonestPrograms_RunAsAnywhere(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		language       sandbox.Language
		code           string
		stdout, stderr string // stderr: a part
		exit           int
		files          map[string]string
	}{
		"py json":        {"python", "import json\nprint(json.dumps({'a': [1, 2.5, None, True]}))", `{"a": [1, 2.5, null, true]}` + "\n", "", 0, nil},
		"py math":        {"python", "import math, statistics\nprint(math.factorial(20), round(math.pi, 5), statistics.stdev([1, 2, 3]))", "2432902008176640000 3.14159 1.0\n", "", 0, nil},
		"py re":          {"python", "import re\nprint(re.findall(r'\\d+', 'a1b22c333'))", "['1', '22', '333']\n", "", 0, nil},
		"py datetime":    {"python", "from datetime import date, timedelta\nprint(date(2024, 2, 28) + timedelta(days=2))", "2024-03-01\n", "", 0, nil},
		"py zones":       {"python", "from datetime import datetime\nfrom zoneinfo import ZoneInfo\nprint(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo('Europe/Berlin')).utcoffset())", "2:00:00\n", "", 0, nil},
		"py csv":         {"python", "import csv\nwith open('/output/a.csv', 'w', newline='') as f:\n    csv.writer(f).writerows([['a', 'b'], [1, 'é']])\nprint('ok')", "ok\n", "", 0, map[string]string{"a.csv": "a,b\r\n1,é\r\n"}},
		"py collections": {"python", "from collections import Counter\nprint(Counter('mississippi').most_common(2))", "[('i', 4), ('s', 4)]\n", "", 0, nil},
		"py decimals":    {"python", "from decimal import Decimal\nfrom fractions import Fraction\nprint(Decimal('0.1') + Decimal('0.2'), Fraction(1, 3) + Fraction(1, 6))", "0.3 1/2\n", "", 0, nil},
		"py lines":       {"python", "for i in range(3):\n    print(i)\nprint('end', end='')", "0\n1\n2\nend", "", 0, nil},
		"py unicode":     {"python", "print('日本語 🎉'[::-1], len('é'))", "🎉 語本日 1\n", "", 0, nil},
		"py traceback":   {"python", "def f(x):\n    return 1 / x\n\nprint('before')\nf(0)", "before\n", "File \"/tmp/main.py\", line 2, in f\n    return 1 / x", 1, nil},
		"py exit":        {"python", "import sys\nsys.stderr.write('bye')\nsys.exit(3)", "", "bye", 3, nil},
		"py syntax":      {"python", "print('a'\n", "", "SyntaxError", 1, nil},
		"py classes":     {"python", "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(1), __name__)", "P(x=1) __main__\n", "", 0, nil},
		"py threads":     {"python", "import threading\nout = []\nts = [threading.Thread(target=lambda i=i: out.append(i)) for i in range(8)]\n[t.start() for t in ts]; [t.join() for t in ts]\nprint(sorted(out))", "[0, 1, 2, 3, 4, 5, 6, 7]\n", "", 0, nil},
		"py asyncio":     {"python", "import asyncio\nasync def f(i):\n    await asyncio.sleep(0.01)\n    return i * i\nasync def main():\n    print(await asyncio.gather(*[f(i) for i in range(4)]))\nasyncio.run(main())", "[0, 1, 4, 9]\n", "", 0, nil},
		"py to_thread":   {"python", "import asyncio, time\nasync def main():\n    r = await asyncio.gather(asyncio.to_thread(time.sleep, 0.01), asyncio.to_thread(sum, [1, 2]))\n    print(r)\n    try: await asyncio.wait_for(asyncio.sleep(10), 0.01)\n    except asyncio.TimeoutError: print('late')\nasyncio.run(main())", "[None, 3]\nlate\n", "", 0, nil},
		"py async child": {"python", "import asyncio, sys\nasync def main():\n    p = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(42)', stdout=asyncio.subprocess.PIPE)\n    print((await p.communicate())[0], p.returncode)\n    try: await asyncio.create_subprocess_exec('/bin/ls')\n    except OSError as e: print(type(e).__name__)\nasyncio.run(main())", "b'42\\n' 0\nFileNotFoundError\n", "", 0, nil},
		"py selectors":   {"python", "import os, selectors\nr, w = os.pipe()\ns = selectors.DefaultSelector()\ns.register(r, selectors.EVENT_READ)\nos.write(w, b'x')\nprint(len(s.select(1)))", "1\n", "", 0, nil},
		"py processes":   {"python", "import multiprocessing\nr, w = multiprocessing.Pipe(False)\np = multiprocessing.Process(target=lambda: w.send(6 * 7))\np.start(); print(r.recv()); p.join(); print(p.exitcode)", "42\n0\n", "", 0, nil},
		"py mapped file": {"python", "import mmap\nf = open('/tmp/m', 'w+b'); f.truncate(4096)\nm = mmap.mmap(f.fileno(), 4096); m[:2] = b'hi'; m.flush(); print(open('/tmp/m', 'rb').read(2))", "b'hi'\n", "", 0, nil},
		"py locks":       {"python", "import fcntl\nf = open('/tmp/l', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_EX); print('held')", "held\n", "", 0, nil},
		"py sqlite":      {"python", "import sqlite3\nd = sqlite3.connect('/tmp/x.db')\nd.execute('create table t(a)')\nd.executemany('insert into t values(?)', [(1,), (2,)])\nprint(d.execute('select sum(a) from t').fetchone())", "(3,)\n", "", 0, nil},
		"py archives":    {"python", "import zipfile, gzip, hashlib\nwith zipfile.ZipFile('/tmp/a.zip', 'w') as z: z.writestr('x', 'hello')\nprint(zipfile.ZipFile('/tmp/a.zip').read('x'), len(gzip.compress(b'a' * 1000)) < 100, hashlib.sha256(b'').hexdigest()[:8])", "b'hello' True e3b0c442\n", "", 0, nil},
		"py temp files":  {"python", "import tempfile, os, shutil\nwith tempfile.TemporaryDirectory() as d:\n    p = os.path.join(d, 'a'); open(p, 'w').write('x'); shutil.copy(p, '/output/copy.txt')\nprint(os.listdir('/output'))", "['copy.txt']\n", "", 0, map[string]string{"copy.txt": "x"}},
		"py folders":     {"python", "import os\nos.makedirs('/output/a/b')\nopen('/output/a/b/c.bin', 'wb').write(bytes([0, 255]))", "", "", 0, map[string]string{"a/b/c.bin": "\x00\xff"}},
		"py subprocess":  {"python", "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout)", "42\n\n", "", 0, nil},
		"py random":      {"python", "import random, uuid, secrets\nrandom.seed(1)\nprint(random.randint(1, 100), len(str(uuid.uuid4())), len(secrets.token_hex(4)))", "18 36 8\n", "", 0, nil},

		"js json":       {"javascript", `console.log(JSON.stringify({a: [1, 2.5, null]}))`, `{"a":[1,2.5,null]}` + "\n", "", 0, nil},
		"js math":       {"javascript", `console.log(Math.max(...[1, 5, 3]), (0.1 + 0.2).toFixed(2))`, "5 0.30\n", "", 0, nil},
		"js map set":    {"javascript", `console.log(new Map([["a", 1]]), new Set([1, 2]), [1, [2, {b: 'c'}]])`, "Map(1) { 'a' => 1 } Set(2) { 1, 2 } [ 1, [ 2, { b: 'c' } ] ]\n", "", 0, nil},
		"js bigint":     {"javascript", `console.log(2n ** 100n, typeof 1n)`, "1267650600228229401496703205376n bigint\n", "", 0, nil},
		"js await":      {"javascript", `const r = await Promise.all([1, 2].map(async x => { await new Promise(r => setTimeout(r, 5)); return x * 2 })); console.log(r)`, "[ 2, 4 ]\n", "", 0, nil},
		"js main":       {"javascript", "async function main() { await null; console.log('done') }\nmain()", "done\n", "", 0, nil},
		"js many jobs":  {"javascript", "let n = 0; while (n < 1200000) { await null; n++ }\nconsole.log(n)", "1200000\n", "", 0, nil},
		"js rejected":   {"javascript", "async function main() { await null; throw new TypeError('no') }\nmain()", "", "Uncaught TypeError: no", 1, nil},
		"js thrown":     {"javascript", "function f() { throw new RangeError('far') }\nconsole.log('before')\nf()", "before\n", "Uncaught RangeError: far", 1, nil},
		"js syntax":     {"javascript", "let = = 1", "", "SyntaxError", 1, nil},
		"js exit":       {"javascript", "console.error('bye'); process.exit(4); console.log('never')", "", "bye", 4, nil},
		"js timers":     {"javascript", `let n = 0; const t = setInterval(() => { console.log(++n); if (n === 3) clearInterval(t) }, 1); setTimeout(() => console.log("late"), 30)`, "1\n2\n3\nlate\n", "", 0, nil},
		"js regexp":     {"javascript", `console.log("2024-05-06".match(/(?<y>\d+)-(?<m>\d+)/).groups.y, "a-b".replaceAll("-", "+"))`, "2024 a+b\n", "", 0, nil},
		"js files":      {"javascript", `const fs = require("fs"); fs.writeFileSync("/output/a.txt", "héllo"); fs.appendFileSync("/output/a.txt", "!"); console.log(fs.readFileSync("/output/a.txt", "utf8"), fs.readdirSync("/output"))`, "héllo! [ 'a.txt' ]\n", "", 0, map[string]string{"a.txt": "héllo!"}},
		"js bytes":      {"javascript", `require("fs").writeFileSync("/output/b.bin", new Uint8Array([0, 128, 255])); console.log(require("fs").readFileSync("/output/b.bin"))`, "Uint8Array(3) [ 0, 128, 255 ]\n", "", 0, map[string]string{"b.bin": "\x00\x80\xff"}},
		"js import":     {"javascript", "import fs from 'node:fs';\nimport { join } from 'path';\nfs.writeFileSync(join('/output', 'm.txt'), 'x');\nconsole.log('ok')", "ok\n", "", 0, map[string]string{"m.txt": "x"}},
		"js generators": {"javascript", `function* g() { yield 1; yield 2 } class A { #x = 1; get x() { return this.#x } } console.log([...g()], new A().x, [3, 1, 2].toSorted(), Object.groupBy ? "grouped" : "no")`, "[ 1, 2 ] 1 [ 1, 2, 3 ] grouped\n", "", 0, nil},
		"js format":     {"javascript", `console.log("%s is %d", "x", 5, {a: undefined}); console.log(null, undefined, -0, () => 1)`, "x is 5 { a: undefined }\nnull undefined -0 [Function: (anonymous)]\n", "", 0, nil},
		"js clone":      {"javascript", `const a = {d: new Date(0), m: new Map([[1, {x: 1}]])}; const b = structuredClone(a); b.m.get(1).x = 2; console.log(a.m.get(1).x, b.d.toISOString())`, "1 1970-01-01T00:00:00.000Z\n", "", 0, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, theShared(t), tt.language, tt.code)
			if r.Stdout != tt.stdout || !strings.Contains(r.Stderr, tt.stderr) || r.ExitCode != tt.exit || tt.stderr == "" && r.Stderr != "" {
				t.Errorf("exit code %d, want %d\nstdout %q\nwant   %q\nstderr %q\nwant   %q", r.ExitCode, tt.exit, r.Stdout, tt.stdout, r.Stderr, tt.stderr)
			}
			if strings.Count(r.Stderr, "Uncaught") > 1 {
				t.Errorf("an error is marked more than once: %q", r.Stderr)
			}
			got := map[string]string{}
			for _, f := range r.Files {
				got[f.Name] = string(f.Data)
			}
			want := tt.files
			if want == nil {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, got); diff != "" || len(r.Limits) > 0 || len(r.Skipped) > 0 || r.Truncated {
				t.Errorf("files: %s\n%+v", diff, r)
			}
		})
	}
}
