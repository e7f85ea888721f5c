package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"hob"
	"hob/internal/config"
	"hob/internal/store"
)

const auditHelp = `  hob audit verify                 follows the chain of every workspace's audit log from its beginning. The exit code is 1, and
                                   the first broken place is named, where an entry was changed, removed, put in or moved
      --expect HASH                a head that was noted earlier must still be in a chain: this finds an end that was cut off
      --json                       as JSON
  hob audit export > log.jsonl     writes the entries, a JSON object a line, in the order of their chains
      --since T  --until T         those from a day or time (RFC 3339) on, and before one; a day as the end is included
      --workspace ID               of one workspace

Both only read, on SQLite and Postgres, while hob serve may go on. On Postgres entries are linked to their chain within a
second or so; how many are not yet is told. Note the head now and then in another place: whoever may write to the database
can cut the end off, and nothing in the database itself would tell.

Options:
`

func audit(ctx context.Context, w world) error {
	flags := flag.NewFlagSet("audit", flag.ContinueOnError)
	expect := flags.String("expect", "", "a head that was noted earlier")
	asJSON := flags.Bool("json", false, "as JSON")
	since := flags.String("since", "", "entries from a day or time on")
	until := flags.String("until", "", "entries before a time, or to the end of a day")
	workspace := flags.String("workspace", "", "of one workspace")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(words) == 0:
		return usageError("what to do is missing: verify or export")
	case len(words) > 1:
		return usageError(fmt.Sprintf("unexpected word %q", words[1]))
	case words[0] == "verify" && (given["since"] || given["until"] || given["workspace"]):
		return usageError("--since, --until and --workspace are of export; a chain is verified whole")
	case words[0] == "verify":
		return auditVerify(ctx, w, c, strings.ToLower(strings.TrimSpace(*expect)), *asJSON)
	case words[0] == "export" && (given["expect"] || given["json"]):
		return usageError("--expect and --json are of verify; an export is JSON")
	case words[0] == "export":
		f, err := auditRange(*since, *until)
		if err != nil {
			return err
		}
		return auditExport(ctx, w, c, hob.WorkspaceID(*workspace), f)
	}
	return usageError(fmt.Sprintf("there is no %q; it is verify or export", words[0]))
}

// auditRange reads the ends of an export.
func auditRange(since, until string) (f hob.AuditFilter, err error) {
	for _, end := range []struct {
		name, text string
		into       *hob.Time
		after      int // days that a day reaches
	}{{"since", since, &f.Since, 0}, {"until", until, &f.Until, 1}} {
		if end.text == "" {
			continue
		}
		t, err := time.Parse(time.DateOnly, end.text)
		if err == nil {
			t = t.AddDate(0, 0, end.after)
		} else if t, err = time.Parse(time.RFC3339Nano, end.text); err != nil {
			return f, usageError(fmt.Sprintf("--%s is a day (2006-01-02) or a time (RFC 3339)", end.name))
		}
		*end.into = hob.Time{Time: t.UTC()}
	}
	return f, nil
}

// openAudit opens the audit log for reading.
func openAudit(ctx context.Context, c config.Config) (*store.AuditLog, error) {
	if err := noHob(c); err != nil {
		return nil, err
	}
	log, err := store.OpenAudit(ctx, store.Config{DSN: c.Database, Dir: c.Data})
	if err != nil {
		return nil, locked(c, err)
	}
	return log, nil
}

func auditVerify(ctx context.Context, w world, c config.Config, expect string, asJSON bool) (err error) {
	log, err := openAudit(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	chains, err := log.Verify(ctx, expect)
	if err != nil {
		return err
	}
	faults := auditFaults(chains, expect)
	if asJSON {
		e := json.NewEncoder(w.stdout)
		e.SetIndent("", "  ")
		err = e.Encode(map[string]any{"ok": len(faults) == 0, "chains": append([]store.AuditChain{}, chains...), "faults": faults})
	} else {
		err = tellChains(w, chains, expect)
	}
	if err != nil || len(faults) == 0 {
		return err
	}
	for _, f := range faults {
		fmt.Fprintf(w.stderr, "hob audit: %s\n", plain(f))
	}
	return exit(exitFault)
}

// auditFaults says what is wrong with chains; it is never nil.
func auditFaults(chains []store.AuditChain, expect string) []string {
	faults, found := []string{}, expect == ""
	for _, c := range chains {
		found = found || c.Expected > 0
		if c.Broken != nil {
			faults = append(faults, fmt.Sprintf("the chain of %s is broken at place %d: %s. It holds up to place %d",
				c.Workspace, c.Broken.Place, c.Broken.What, c.Place))
		}
	}
	if !found {
		faults = append(faults, fmt.Sprintf("no chain has the hash %.64q: its end was cut off or written anew since it was noted, "+
			"or it is of another installation", expect))
	}
	return faults
}

func tellChains(w world, chains []store.AuditChain, expect string) error {
	if len(chains) == 0 {
		_, err := fmt.Fprintln(w.stdout, "the audit log is empty")
		return err
	}
	t := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WORKSPACE\tENTRIES\tLINKED\tNOT YET\tHOLDS\tHEAD")
	for _, c := range chains {
		holds := "yes"
		if c.Broken != nil {
			holds = fmt.Sprintf("up to %d", c.Place)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\n", plain(string(c.Workspace)), c.Entries, c.Linked, c.Loose, holds, plain(c.Head))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range chains {
		if c.Expected > 0 {
			fmt.Fprintf(w.stdout, "the expected hash is at place %d of %s\n", c.Expected, plain(string(c.Workspace)))
		}
	}
	return nil
}

func auditExport(ctx context.Context, w world, c config.Config, ws hob.WorkspaceID, f hob.AuditFilter) (err error) {
	log, err := openAudit(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	e := json.NewEncoder(w.stdout)
	for entry, err := range log.Entries(ctx, ws, f) {
		if err != nil {
			return err
		}
		if err := e.Encode(entry); err != nil {
			return fmt.Errorf("write an entry: %w", err)
		}
	}
	return nil
}

// noteWhole writes into the audit log what a command did to a store as a whole.
func noteWhole(ctx context.Context, at store.Config, action, kind, object string) error {
	by := hob.System(hob.DefaultWorkspace)
	return store.NoteAudit(ctx, at, hob.AuditEntry{Workspace: by.Workspace, Actor: by.Name(), Action: action, Kind: kind, Object: object})
}
