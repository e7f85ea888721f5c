package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hob"
	"hob/internal/agentsql"
	"hob/internal/api"
	"hob/internal/config"
	"hob/internal/egress"
	"hob/internal/seal"
	"hob/internal/store"
)

func (r *report) checkAccess() {
	switch err := r.config.CheckExposed(); {
	case err != nil:
		r.add("access", bad, explain(err), "")
	case r.config.Loopback():
		r.add("access", ok, "only this machine reaches "+r.config.Addr, "")
	default:
		r.add("access", ok, r.config.Addr+" is open to other machines, with a service key of the operator's; put TLS before it", "")
	}
	if s := r.config.JWTSecret; s != "" && len(s) < config.MinJWTSecret {
		r.add("access", warn, fmt.Sprintf("HOB_JWT_SECRET has %d characters: easy to guess", len(s)), "use the output of: openssl rand -hex 32")
	}
	if !r.config.RateLimit {
		r.add("access", warn, "HOB_RATE_LIMIT is off: one client can take the whole server", "")
	}
	if os.Geteuid() == 0 {
		r.add("access", warn, "this runs as root", "run hob as a user of its own")
	}
}

// checkFolder looks at the modes of what should be nobody else's to read.
func (r *report) checkFolder() {
	dir := r.config.Data
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.add("data folder", warn, dir+" is not there yet; hob serve makes it", "")
		return
	case err != nil:
		r.add("data folder", bad, err.Error(), "")
		return
	case !info.IsDir():
		r.add("data folder", bad, dir+" is a file", "choose another with --data")
		return
	case info.Mode().Perm()&0o022 != 0:
		r.add("data folder", bad, fmt.Sprintf("others may write to %s (mode %04o)", dir, info.Mode().Perm()), "chmod 700 "+dir)
	case info.Mode().Perm()&0o077 != 0:
		r.add("data folder", warn, fmt.Sprintf("others may look into %s (mode %04o)", dir, info.Mode().Perm()), "chmod 700 "+dir)
	default:
		r.add("data folder", ok, fmt.Sprintf("%s is its owner's alone (mode %04o)", dir, info.Mode().Perm()), "")
	}
	for _, name := range []string{config.FileName, serviceKeyFile, store.FileName, store.FileName + "-wal"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			r.add("data folder", bad, fmt.Sprintf("others may read %s (mode %04o)", path, info.Mode().Perm()), "chmod 600 "+path)
		}
	}
}

// checkSeal opens the seal key without making one.
func (r *report) checkSeal() *seal.Box {
	path := filepath.Join(r.config.Data, sealKeyFile)
	if r.config.SealKey == "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if r.hasStore() {
				r.add("seal key", bad, path+" is missing: the secrets in the database cannot be opened",
					"put the file back from its backup, or set "+seal.EnvKey)
			} else {
				r.add("seal key", warn, "there is none yet; hob serve makes "+path, "")
			}
			return nil
		}
	}
	box, err := seal.Open(path, string(r.config.SealKey))
	if err != nil {
		r.add("seal key", bad, err.Error(), "")
		return nil
	}
	r.add("seal key", ok, "from "+box.Source(), "")
	return box
}

// hasStore says whether a store exists: one in the data folder begins with its file, one on Postgres is asked.
func (r *report) hasStore() bool {
	if r.config.Database != "" {
		return true
	}
	_, err := os.Stat(filepath.Join(r.config.Data, store.FileName))
	return err == nil
}

// checkProject asks the project database's own checks, without making the sample.
func (r *report) checkProject(ctx context.Context) {
	const check = "project database"
	path := filepath.Join(r.config.Data, projectFile)
	var db agentsql.DB
	var err error
	switch {
	case r.config.Database == "" && r.config.ProjectDatabase == "":
		if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
			r.add(check, warn, "there is none yet; hob serve makes "+path+" with a sample", "")
			return
		}
		db, err = agentsql.OpenSQLite(path, agentsql.Options{})
	default:
		db, err = openPostgresProject(ctx, r.config, nil) // Check tells what is allowed
	}
	if err != nil {
		fix := ""
		if isPowerful(err) {
			fix = agentsql.FixPowerful
		}
		r.add(check, bad, err.Error(), fix)
		return
	}
	defer func() { _ = db.Close() }() // it was only asked
	levels := map[agentsql.Level]verdict{agentsql.OK: ok, agentsql.Warning: warn, agentsql.Fault: bad}
	for _, f := range db.Check(ctx) {
		r.add(check, levels[f.Level], f.Text, f.Fix)
	}
	tables, err := db.Tables(ctx)
	if err != nil {
		return // which the checks have told
	}
	text := "no table can be granted yet"
	if n := len(tables); n > 0 {
		text = "tables that can be granted: " + strings.Join(tables[:min(n, shownTables)], ", ")
		if n > shownTables {
			text += fmt.Sprintf(" and %d more", n-shownTables)
		}
	}
	r.add(check, ok, text, "")
}

// shownTables is how many tables of the project database are named.
const shownTables = 50

// checkEgress tries the guard on a listener of its own: what it must refuse is really there to be reached.
func (r *report) checkEgress(ctx context.Context) {
	const check = "egress guard"
	allow, err := egress.ParseAllow(r.config.EgressAllow)
	if err != nil {
		r.add(check, bad, err.Error(), "")
		return
	}
	canary, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		r.add(check, warn, "not tried: "+err.Error(), "")
		return
	}
	defer func() { _ = canary.Close() }()
	reached := make(chan struct{}, 1)
	go func() {
		if conn, err := canary.Accept(); err == nil {
			_ = conn.Close() // that it came is all that counts
			reached <- struct{}{}
		}
	}()
	guard := egress.New(egress.Config{})
	defer guard.Close()
	for _, url := range []string{"http://" + canary.Addr().String() + "/", "http://169.254.169.254/latest/meta-data/"} {
		_, err := guard.Do(ctx, egress.Request{Pool: "doctor", URL: url, Timeout: 2 * time.Second})
		var refused *egress.Error
		if !errors.As(err, &refused) || refused.Kind != egress.Refused {
			r.add(check, bad, fmt.Sprintf("%s was not refused (%v)", url, err), "do not run this build")
			return
		}
	}
	select {
	case <-reached:
		r.add(check, bad, "a connection to this machine went through", "do not run this build")
		return
	default:
	}
	text := "refuses this machine and the cloud metadata address"
	if len(allow) > 0 {
		names := make([]string, len(allow))
		for i, e := range allow {
			names[i] = e.String()
		}
		r.add(check, warn, text+"; --egress-allow opens "+strings.Join(names, ", "), "")
		return
	}
	r.add(check, ok, text, "")
}

// wantedFiles is taken where the limit cannot be read.
const wantedFiles = 12_000

// checkFiles looks at the limit on open files, which bounds connections.
func (r *report) checkFiles() {
	limits := api.DefaultLimits()
	files := openFiles()
	_, streams := bounds(files, api.DefaultConnLimits(), limits.Streams)
	if streams < limits.Streams {
		r.add("open files", warn, fmt.Sprintf("at most %d, so at most %d streams instead of %d", files, streams, limits.Streams),
			"raise the hard limit (ulimit -Hn, LimitNOFILE=) to 16384")
		return
	}
	r.add("open files", ok, fmt.Sprintf("up to %d", files), "")
}

// openFiles is how many files and connections this process may have open. Go has raised the soft limit to the hard one.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return wantedFiles // unknown; what is usual
	}
	return limit.Cur
}

// maxClockSkew is how far the machine's clock may be from the database's: rows carry the one, leases count by the other.
const maxClockSkew = 5 * time.Second

// checkStore looks at the store before it opens it as the server does: opening makes what is missing, looking does not.
func (r *report) checkStore(ctx context.Context, box *seal.Box) {
	const check = "store"
	c := store.Config{DSN: r.config.Database, Dir: r.config.Data, Box: box}
	began := hob.SystemClock()
	facts, err := store.Inspect(ctx, c)
	switch {
	case hob.KindOf(err) == hob.NotFound:
		r.add(check, warn, "there is none yet; hob serve makes it", "")
		return
	case err != nil:
		r.add(check, bad, explain(err), "")
		return
	}
	text := fmt.Sprintf("%s %s, schema %d", facts.Dialect, facts.Server, facts.Schema)
	if facts.Schema > facts.Known {
		r.add(check, bad, fmt.Sprintf("%s: newer than this program, which knows %d", text, facts.Known), "start the newer hob")
		return
	}
	if weak := facts.Weak(); len(weak) > 0 {
		r.add(check, warn, "the database may lose what it acknowledged: "+strings.Join(weak, ", "), "set them to their defaults")
	}
	r.checkClock(facts.Clock, began)
	if facts.Schema < facts.Known {
		r.add(check, warn, fmt.Sprintf("%s: hob serve brings it to %d", text, facts.Known), "")
		return
	}
	if box == nil {
		r.add(check, bad, text+": not opened, because there is no seal key", "")
		return
	}
	s, err := store.Open(ctx, c)
	if err != nil {
		r.add(check, bad, explain(err), "")
		return
	}
	defer func() { _ = s.Close() }() // it was only asked
	r.add(check, ok, text+", filled under this seal key", "")
	r.checkKeys(ctx, s)
	r.checkHeld(ctx, s)
}

// checkHeld reminds of runs that a restore brought back and that nobody has judged yet.
func (r *report) checkHeld(ctx context.Context, s hob.Store) {
	held, err := s.HeldRuns(ctx, hob.System(hob.DefaultWorkspace))
	if err != nil {
		r.add("held runs", bad, explain(err), "")
	} else if len(held) > 0 {
		r.add("held runs", warn, count(len(held), "run")+" restored unfinished: held until released",
			"look at them with hob restore --held; then hob restore --release, or cancel them")
	}
}

// checkClock compares the database's clock with this machine's, which was read before and is read again now.
func (r *report) checkClock(database, began time.Time) {
	ended := hob.SystemClock()
	skew := max(began.Sub(database), database.Sub(ended), 0)
	if skew > maxClockSkew {
		r.add("clock", warn, fmt.Sprintf("the database's clock differs from this machine's by %s", skew.Round(time.Second)),
			"set both by NTP")
		return
	}
	r.add("clock", ok, "the database's clock agrees with this machine's", "")
}

// checkKeys says whether anybody can use the server.
func (r *report) checkKeys(ctx context.Context, s hob.Store) {
	keys, err := s.Keys(ctx, hob.System(hob.DefaultWorkspace))
	if err != nil {
		r.add("keys", bad, explain(err), "")
		return
	}
	service, now := 0, hob.SystemClock()
	for _, k := range keys {
		if k.Service && k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt.Time)) {
			service++
		}
	}
	if service == 0 {
		r.add("keys", warn, "no service key is valid", "start once with HOB_SERVICE_KEY set to a new key")
		return
	}
	r.add("keys", ok, count(service, "valid service key")+", "+count(len(keys), "key")+" in all", "")
}
