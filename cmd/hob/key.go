package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"hob"
	"hob/client"
)

const keyHelp = `  hob key create NAME    makes a key and prints its secret, this once, alone on standard output
      --scopes LIST      of read, run, approve, configure, admin; read,run where left out
      --agent AGENT      binds the key to one agent (name or id)
      --service          a service key: speaks for the whole workspace
      --expires TIME     how long it is valid, as 30d or 720h; for ever where left out
  hob key list           lists the keys
  hob key revoke KEY     ends a key (id, prefix or name); streams opened with it end too

  --json                 prints what the server answered

The server is found at HOB_ADDR; the key that may do this is HOB_KEY, else the one in the data folder.

Options:
`

// keyFlags are the flags of all three.
type keyFlags struct {
	scopes, agent string
	service       bool
	expires       time.Duration
	asJSON        bool
}

func keys(ctx context.Context, w world) error {
	var f keyFlags
	flags := flag.NewFlagSet("key", flag.ContinueOnError)
	flags.StringVar(&f.scopes, "scopes", "", "comma list of scopes")
	flags.StringVar(&f.agent, "agent", "", "agent to bind the key to")
	flags.BoolVar(&f.service, "service", false, "a service key")
	flags.Func("expires", "how long the key is valid", func(v string) (err error) { f.expires, err = lifetime(v); return err })
	flags.BoolVar(&f.asJSON, "json", false, "as JSON")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	verbs := map[string]struct {
		words int
		do    func(context.Context, world, *remote, keyFlags, string) error
	}{"create": {2, createKey}, "list": {1, listKeys}, "revoke": {2, revokeKey}}
	if len(words) == 0 {
		return usageError("what to do is missing: create, list or revoke")
	}
	verb, known := verbs[words[0]]
	switch {
	case !known:
		return usageError(fmt.Sprintf("there is no %q; it is create, list or revoke", words[0]))
	case len(words) < verb.words && words[0] == "create":
		return usageError("the key needs a name, to tell it from others: hob key create NAME")
	case len(words) < verb.words:
		return usageError("which key? hob key list shows them")
	case len(words) > verb.words:
		return usageError(fmt.Sprintf("unexpected word %q", words[verb.words]))
	}
	r, err := connect(c)
	if err != nil {
		return err
	}
	defer r.Close()
	return verb.do(ctx, w, r, f, words[len(words)-1])
}

// lifetime reads how long a key is valid: whole days as 30d, or a duration as 720h.
func lifetime(v string) (time.Duration, error) {
	const day, most = 24 * time.Hour, 100 * 365
	if number, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.Atoi(number); err == nil && n > 0 && n <= most {
			return time.Duration(n) * day, nil
		}
	} else if d, err := time.ParseDuration(v); err == nil && d > 0 && d <= most*day {
		return d, nil
	}
	return 0, errors.New("it must be a time to come, for example 30d or 720h")
}

func createKey(ctx context.Context, w world, r *remote, f keyFlags, name string) error {
	in := client.KeyInput{Name: name, Service: f.service}
	for s := range strings.SplitSeq(f.scopes, ",") {
		if s = strings.TrimSpace(s); s != "" {
			in.Scopes = append(in.Scopes, hob.Scope(s))
		}
	}
	if f.expires > 0 {
		at := hob.SystemClock().Add(f.expires)
		in.ExpiresAt = &at
	}
	if f.agent != "" {
		a, err := r.agent(ctx, f.agent)
		if err != nil {
			return err
		}
		in.Agent = a.ID
	}
	k, err := r.CreateKey(ctx, in)
	if err != nil {
		return r.explain(err)
	}
	if f.asJSON {
		return writeJSON(w, k)
	}
	fmt.Fprintf(w.stderr, "key %s (%s); its secret is shown this once:\n", k.ID, plain(k.Name))
	fmt.Fprintln(w.stdout, k.Secret)
	return nil
}

func listKeys(ctx context.Context, w world, r *remote, f keyFlags, _ string) error {
	list, err := r.Keys(ctx)
	if err != nil {
		return r.explain(err)
	}
	if f.asJSON {
		return writeJSON(w, map[string]any{"keys": list})
	}
	t := tabwriter.NewWriter(w.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tNAME\tBEGINS\tRIGHTS\tSTATE")
	for _, k := range list {
		fmt.Fprintf(t, "%s\t%s\t%s…\t%s\t%s\n", k.ID, plain(k.Name), plain(k.Prefix), rights(k), keyState(k))
	}
	return t.Flush()
}

func rights(k hob.Key) string {
	if k.Service {
		return "service"
	}
	names := make([]string, len(k.Scopes))
	for i, s := range k.Scopes {
		names[i] = string(s)
	}
	text := strings.Join(names, ",")
	if k.Agent != "" {
		text += " on agent " + string(k.Agent)
	}
	return text
}

func keyState(k hob.Key) string {
	const day = "2006-01-02 15:04"
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked " + k.RevokedAt.Format(day)
	case k.ExpiresAt.IsZero():
		return "valid"
	case k.ExpiresAt.After(hob.SystemClock()):
		return "valid until " + k.ExpiresAt.Format(day)
	}
	return "expired " + k.ExpiresAt.Format(day)
}

func revokeKey(ctx context.Context, w world, r *remote, f keyFlags, word string) error {
	list, err := r.Keys(ctx)
	if err != nil {
		return r.explain(err)
	}
	id, err := pickKey(list, word)
	if err != nil {
		return err
	}
	k, err := r.RevokeKey(ctx, id)
	if err != nil {
		return r.explain(err)
	}
	if f.asJSON {
		return writeJSON(w, k)
	}
	fmt.Fprintf(w.stdout, "revoked %s (%s)\n", k.ID, plain(k.Name))
	return nil
}

// pickKey finds the one key that a word means: by id, else by what it begins with, else by name among those that are
// still valid.
func pickKey(list []hob.Key, word string) (hob.KeyID, error) {
	var found []hob.Key
	for _, k := range list {
		if string(k.ID) == word {
			return k.ID, nil
		}
		if k.RevokedAt.IsZero() && (k.Name == word || k.Prefix == word) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 1:
		return found[0].ID, nil
	case 0:
		return "", hob.Errorf(hob.NotFound, "no valid key has the id, beginning or name %q; hob key list shows them", word)
	}
	return "", hob.Errorf(hob.Conflict, "%d keys are called %q; use an id from hob key list", len(found), word)
}

func writeJSON(w world, v any) error {
	e := json.NewEncoder(w.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
