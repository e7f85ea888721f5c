package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	"hob"
	"hob/internal/config"
)

const doctorHelp = `Checks the installation as hob serve would find it: data folder and keys, the store, what agents' SQL can do, the egress
guard, model providers (those at an address of your own are asked for their models), services behind tools (those at an
address of your own are asked whether they answer), limits of the system. It changes nothing: the logins of agents' SQL on
Postgres are tried in a transaction that is rolled back, and a small file that is written where files lie is deleted. The
exit code is 1 when a check fails.

With --session it looks at one session instead: its turns, its summaries, and every place where its history breaks the
rules that models' providers insist on, as a database may that was restored by hand. The exit code is 1 when there are any.

  --json          the checks and the configuration, or what is told of the session, as JSON
  --session ID    look at the session of that id; the server may run
  --repair        with --session: mend what is found. Stop the server before, and make a backup

Options: those of hob serve (hob help serve), whose values it judges. These say where to look:
`

// verdict is how a check came out.
type verdict string

const (
	ok   verdict = "ok"
	warn verdict = "warn"
	bad  verdict = "fail"
)

// finding is one line of the table.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Text    string  `json:"text"`
	Fix     string  `json:"fix,omitempty"`
}

// doctorTime bounds all checks together.
const doctorTime = 30 * time.Second

// report collects findings.
type report struct {
	config   config.Config
	findings []finding
}

func (r *report) add(check string, v verdict, text, fix string) {
	r.findings = append(r.findings, finding{check, v, text, fix})
}

func doctor(ctx context.Context, w world) error {
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "as JSON")
	session := flags.String("session", "", "look at the session of that id")
	mend := flags.Bool("repair", false, "with --session: mend what is found")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return usageError(fmt.Sprintf("unexpected word %q", words[0]))
	}
	if *mend && *session == "" {
		return usageError("--repair mends one session: name it with --session")
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	if *session != "" {
		return doctorSession(ctx, w, c, sessionCheck{id: hob.SessionID(*session), mend: *mend, asJSON: *asJSON})
	}
	r := &report{config: c}
	r.checkAccess()
	r.checkFolder()
	box := r.checkSeal()
	r.checkStore(ctx, box)
	r.checkProject(ctx)
	r.checkStorage(ctx)
	r.checkEgress(ctx)
	r.checkModels(ctx)
	r.checkServices(ctx)
	r.checkFiles()
	r.checkSandbox(ctx)
	if err := r.write(w, *asJSON); err != nil {
		return err
	}
	for _, f := range r.findings {
		if f.Verdict == bad {
			return exit(exitFault)
		}
	}
	return nil
}

func (r *report) write(w world, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w.stdout)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"version": buildVersion(), "checks": r.findings, "configuration": r.config.Dump()})
	}
	colour := colours(w.stdout, w.getenv)
	var b strings.Builder
	fmt.Fprintf(&b, "hob %s\n\n", buildVersion())
	for _, f := range r.findings {
		mark := string(f.Verdict)
		if colour {
			mark = string(map[verdict]style{ok: green, warn: yellow, bad: red}[f.Verdict]) + mark + reset
		}
		fmt.Fprintf(&b, "%s%s  %-17s %s\n", mark, strings.Repeat(" ", 4-len(f.Verdict)), f.Check, plain(f.Text))
		if f.Fix != "" {
			fmt.Fprintf(&b, "%25s→ %s\n", "", plain(f.Fix))
		}
	}
	b.WriteString("\nConfiguration (what is not a default):\n")
	for _, s := range r.config.Dump() {
		if s.Source != config.FromDefault {
			fmt.Fprintf(&b, "  %-24s %s (%s)\n", s.Name, plain(s.Value), s.Source)
		}
	}
	_, err := fmt.Fprint(w.stdout, b.String())
	return err
}
