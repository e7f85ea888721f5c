package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hob"
	"hob/internal/config"
	"hob/internal/egress"
	"hob/internal/provider"
	"hob/internal/store"
)

const providerHelp = `  hob provider test URL --model M    asks a model at an address a series of small questions, prints what it and its server
                                     can do, and keeps where they deviate from what Hob takes for granted, so that
                                     runs work with it
      --dialect D    openai, anthropic or gemini; where left out by the address: a vendor's own, else openai
      --json         the report as JSON
      --no-store     keeps nothing

URL is the base URL as the provider's variable has it: with the version for openai (https://host/v1), without it for the
others. The key is HOB_PROVIDER_KEY, else the one configured for that address. The model is asked about 25 times; how many
tokens that took is told at the end. What was found is given to the server at HOB_ADDR, or written into the data folder when
none runs. The exit code is 1 when the model does not answer at all, or when nothing could be kept.

Options:
`

// providerKeyVar holds the key of the endpoint that is tested. It is no option of the server.
const providerKeyVar = "HOB_PROVIDER_KEY"

// providerOptions are the options that name keys, and where a profile is kept.
func providerOptions() []string {
	return append(clientOptions(), "--database", "HOB_SEAL_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY",
		"ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GEMINI_BASE_URL", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL")
}

// providerFlags are the flags of hob provider test.
type providerFlags struct {
	model, dialect  string
	asJSON, noStore bool
}

func providers(ctx context.Context, w world) error {
	var f providerFlags
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	flags.StringVar(&f.model, "model", "", "the model, as the endpoint names it")
	flags.StringVar(&f.dialect, "dialect", "", "openai, anthropic or gemini")
	flags.BoolVar(&f.asJSON, "json", false, "as JSON")
	flags.BoolVar(&f.noStore, "no-store", false, "keep nothing")
	c, words, err := w.load(flags)
	switch {
	case err != nil:
		return err
	case len(words) == 0:
		return usageError("what to do is missing: test")
	case words[0] != "test":
		return usageError(fmt.Sprintf("there is no %q; it is test", words[0]))
	case len(words) < 2:
		return usageError("which address? hob provider test https://host/v1 --model M")
	case len(words) > 2:
		return usageError(fmt.Sprintf("unexpected word %q", words[2]))
	case f.model == "":
		return usageError("which model? --model NAME, as the endpoint names it")
	case !webAddress(words[1]):
		return usageError(fmt.Sprintf("%q is no address; it must be like https://host/v1", words[1]))
	}
	return testProvider(ctx, w, c, f, words[1])
}

// webAddress says whether a word is the address of a server.
func webAddress(word string) bool {
	u, err := url.Parse(strings.TrimSpace(word))
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// testProvider probes the model, prints the report and keeps the profile.
func testProvider(ctx context.Context, w world, c config.Config, f providerFlags, address string) error {
	if f.dialect == "" {
		f.dialect = provider.GuessDialect(address)
	}
	key, keyName := providerKey(c, w.getenv, address)
	guard := egress.New(egress.Config{})
	defer guard.Close()
	ask := provider.ProbeConfig{
		Dialect: f.dialect, BaseURL: address, Key: key, KeyName: keyName, Model: f.model, Clients: guard,
	}
	if !f.asJSON {
		fmt.Fprintf(w.stdout, "%s at %s\n\n", plain(f.model), plain(address))
		ask.Told = func(one provider.Check) { writeCheck(w, one) }
	}
	report, err := provider.Probe(ctx, ask)
	if err != nil {
		return err
	}
	kept := ""
	if report.Usable && !f.noStore {
		kept, err = keepProfile(ctx, c, report)
	}
	if f.asJSON {
		if err := writeJSON(w, struct {
			provider.ProbeReport
			Changes []string `json:"changes"`        // what runs do otherwise with the facts
			Kept    string   `json:"kept,omitempty"` // where the profile was kept
		}{report, append([]string{}, report.Changes()...), kept}); err != nil {
			return err
		}
	} else {
		writeEnd(w, report, kept)
	}
	if err == nil && !report.Usable {
		return exit(exitFault)
	}
	return err
}

func writeCheck(w world, c provider.Check) {
	mark := fmt.Sprintf("%-7s", c.Outcome)
	if colours(w.stdout, w.getenv) {
		mark = string(map[provider.Outcome]style{provider.Yes: green, provider.No: red, provider.Unclear: yellow}[c.Outcome]) + mark + reset
	}
	fmt.Fprintf(w.stdout, "%-20s  %s  %s\n", c.Name, mark, plain(c.Note))
}

func writeEnd(w world, r provider.ProbeReport, kept string) {
	about := ""
	if r.Estimated {
		about = "about "
	}
	fmt.Fprintf(w.stdout, "\n%s, %s%s\n", count(r.Calls, "call"), about, count(int(r.Tokens), "token"))
	switch {
	case !r.Usable:
		fmt.Fprintln(w.stdout, "The endpoint cannot be used like this; nothing was kept.")
	case kept != "":
		fmt.Fprintf(w.stdout, "The profile was kept %s: %s.\n", plain(kept), strings.Join(r.Facts.Known(), ", "))
	}
	if !r.Usable {
		return
	}
	changes := r.Changes()
	if len(changes) == 0 {
		fmt.Fprintln(w.stdout, "It changes nothing for runs: the model is as Hob takes it to be.")
		return
	}
	with := "With it runs differ"
	if kept == "" {
		with = "With these facts runs would differ"
	}
	fmt.Fprintf(w.stdout, "%s in this: %s.\n", with, strings.Join(changes, "; "))
}

// providerKey is the key for an address: the one given for this command, else the one configured for that address. A key
// is never sent anywhere else. name is the variable that holds it, or that is to hold it where there is none.
func providerKey(c config.Config, getenv func(string) string, address string) (key hob.Secret, name string) {
	if key := strings.TrimSpace(getenv(providerKeyVar)); key != "" {
		return hob.Secret(key), providerKeyVar
	}
	at := provider.ProfileEndpoint(address)
	for _, one := range []struct {
		endpoint     config.Endpoint
		vendor, name string
	}{
		{c.OpenAI, "https://api.openai.com/v1", "OPENAI_API_KEY"},
		{c.Anthropic, "https://api.anthropic.com", "ANTHROPIC_API_KEY"},
		{c.Gemini, "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"},
		{c.OpenRouter, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"},
	} {
		base := one.endpoint.BaseURL
		if base == "" {
			base = one.vendor
		}
		if one.endpoint.Key != "" && provider.ProfileEndpoint(base) == at {
			return one.endpoint.Key, one.name
		}
	}
	return "", providerKeyVar
}

// keepProfile gives the profile to the server, or to the store where no server runs, and says where it is.
func keepProfile(ctx context.Context, c config.Config, report provider.ProbeReport) (string, error) {
	profile, err := report.Profile(hob.SystemClock())
	if err != nil {
		return "", fmt.Errorf("keep the profile: %w", err)
	}
	r, err := connect(c)
	switch {
	case err == nil:
		defer r.Close()
		_, err = r.PutProfile(ctx, profile)
		if err == nil {
			return "by the server at " + c.URL(), nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return "", fmt.Errorf("the profile was not kept: %w", r.explain(err))
		}
	case hob.KindOf(err) != hob.Unauthorized: // there is a key, but it cannot be read
		return "", fmt.Errorf("the profile was not kept: %w", err)
	}
	if err := storeProfile(ctx, c, profile); err != nil {
		return "", fmt.Errorf("the profile was not kept: %w", err)
	}
	if c.Database != "" {
		return "in the database", nil
	}
	return "in " + c.Data, nil
}

// storeTime bounds writing into the store.
const storeTime = 30 * time.Second

// storeProfile writes into the store itself. It makes none: who has none has not started a server yet.
func storeProfile(ctx context.Context, c config.Config, profile hob.ModelProfile) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if c.Database == "" {
		if _, err := os.Stat(filepath.Join(c.Data, store.FileName)); err != nil {
			return hob.Errorf(hob.NotFound, "no server answers at %s and there is no store in %s; start one with: hob serve, set HOB_ADDR "+
				"or --data, or use --no-store", c.URL(), c.Data)
		}
		unlock, err := lockFolder(c.Data)
		if err != nil {
			return err
		}
		defer unlock()
	}
	box, err := openSeal(ctx, c)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, store.Config{DSN: c.Database, Dir: c.Data, Box: box})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.PutProfile(ctx, hob.System(hob.DefaultWorkspace), profile)
}
