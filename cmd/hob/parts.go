package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"hob"
	"hob/internal/agentsql"
	"hob/internal/api"
	"hob/internal/builtin"
	"hob/internal/config"
	"hob/internal/egress"
	"hob/internal/hook"
	"hob/internal/provider"
	"hob/internal/sandbox"
	"hob/internal/seal"
	"hob/internal/settings"
	"hob/internal/storage"
	"hob/internal/store"
)

// parts are a server's insides, opened in the order in which they depend on each other. hob doctor opens the same ones.
type parts struct {
	box         *seal.Box
	guard       *egress.Guard
	store       *store.DB
	database    agentsql.DB // nil = the database tools are off
	databaseOff string      // and why
	settings    *settings.Set
	files       *storage.Files
	filesPlace  io.Closer        // what files hold open; nil = nothing
	sandbox     *sandbox.Sandbox // nil = no code is run on this machine
	tools       *builtin.Set
	models      *provider.Registry
	hooks       *hook.Sender

	own atomic.Pointer[netip.AddrPort] // the address the server listens on, which no tool may reach
}

// open opens everything but the engine and the API. What was opened is closed again where a later part fails.
func (w world) open(ctx context.Context, c config.Config, log *slog.Logger) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if p.guard, err = p.openGuard(c, log); err != nil {
		return nil, err
	}
	if p.box, err = openSeal(ctx, c); err != nil {
		return nil, err
	}
	if p.store, err = store.Open(ctx, store.Config{DSN: c.Database, Dir: c.Data, Box: p.box}); err != nil {
		return nil, err
	}
	if p.settings, err = settings.New(settings.Config{
		Store: p.store, Getenv: settingsEnv(w.getenv, c), Checks: p.settingChecks(c),
	}); err != nil {
		return nil, configError{err}
	}
	if err = p.openFiles(c, log); err != nil {
		return nil, err
	}
	p.openDatabase(ctx, c, log)
	deps := builtin.Deps{Egress: p.guard, Files: p.files, DatabaseOff: p.databaseOff, Setting: p.settings.Value, Log: log}
	if p.database != nil {
		deps.Database = projectDatabase{db: p.database, log: log}
	}
	p.addWeb(&deps, c)
	p.addCode(&deps, c, log)
	p.tools = builtin.New(deps)
	p.hooks = hook.New(hook.Config{Egress: p.guard, Store: p.store, Log: log, Version: buildVersion(), Limits: hook.Limits{Drain: closeTime}})
	p.models = provider.New(provider.Config{
		OpenAI: provider.Endpoint(c.OpenAI), Anthropic: provider.Endpoint(c.Anthropic),
		Gemini: provider.Endpoint(c.Gemini), OpenRouter: provider.Endpoint(c.OpenRouter), OllamaHost: c.OllamaHost,
		FindOllama: provider.UsualOllama, Clients: p.guard,
		Keys: p.store.OpenProviderKeys, Profiles: p.store.Profiles, Settings: p.settings.Value,
	})
	return p, nil
}

func (p *parts) openGuard(c config.Config, log *slog.Logger) (*egress.Guard, error) {
	allow, err := egress.ParseAllow(c.EgressAllow)
	if err != nil {
		return nil, configError{err}
	}
	return egress.New(egress.Config{
		Allow: allow,
		Own: func() []netip.AddrPort {
			if own := p.own.Load(); own != nil {
				return []netip.AddrPort{*own}
			}
			return nil
		},
		Refused: func(r egress.Refusal) {
			log.Info("the egress guard refused a destination", slog.String("host", r.Host), slog.Int("port", int(r.Port)),
				slog.String("rule", string(r.Rule)))
		},
	}), nil
}

// openDatabase opens what agents query. A fault turns the tool off and says why: the server is of use without it.
func (p *parts) openDatabase(ctx context.Context, c config.Config, log *slog.Logger) {
	var powers string
	db, err := openProject(ctx, c, func(text string) {
		powers = text
		log.Warn("agents' database tools are on although "+text, slog.String("allowed_by", "--allow-powerful-role"))
	})
	if err == nil && powers != "" {
		if err = p.noteOverride(ctx, powers); err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		p.databaseOff = offBecause(err)
		fix := "hob doctor"
		if isPowerful(err) {
			fix = agentsql.FixPowerful
		}
		log.Warn("the database tools are off", slog.String("error", err.Error()), slog.String("fix", fix))
		return
	}
	p.database = db
}

// noteOverride notes that an operator lets a database login be used that can do more than it should. Without the note it is
// not used.
func (p *parts) noteOverride(ctx context.Context, powers string) error {
	detail, err := json.Marshal(map[string]string{"although": powers})
	if err != nil {
		return err
	}
	return p.store.NoteAudit(ctx, hob.System(hob.DefaultWorkspace), hob.AuditEntry{
		Action: hob.ActOverride, Kind: "role", Object: "project database", Rule: "--allow-powerful-role", Detail: detail,
	})
}

// offBecause is why the database tools are off, for whoever uses the API.
func offBecause(err error) string {
	if isPowerful(err) {
		return "the user of the project database is a superuser; the operator gives it another user, or allows this one with --allow-powerful-role"
	}
	return "the project database cannot be used; the operator finds the reason with: hob doctor"
}

// isPowerful says whether the project database was refused because its user may do everything.
func isPowerful(err error) bool {
	var e *agentsql.Error
	return errors.As(err, &e) && e.Kind == agentsql.Powerful
}

// openProject opens the project database. In the data folder a sample is made where there is none; on Postgres the sample
// is a schema, made only where the operator named no database of their own.
func openProject(ctx context.Context, c config.Config, warn func(string)) (agentsql.DB, error) {
	if c.Database == "" && c.ProjectDatabase == "" {
		path := filepath.Join(c.Data, projectFile)
		if err := agentsql.SeedSQLite(path); err != nil {
			return nil, err
		}
		return agentsql.OpenSQLite(path, agentsql.Options{})
	}
	if c.ProjectDatabase == "" {
		if err := agentsql.SeedPostgres(ctx, c.Database); err != nil {
			return nil, err
		}
	}
	return openPostgresProject(ctx, c, warn)
}

func openPostgresProject(ctx context.Context, c config.Config, warn func(string)) (agentsql.DB, error) {
	url := c.ProjectDatabase
	if url == "" {
		url = c.Database
	}
	secret, err := loginSecret(c)
	if err != nil {
		return nil, err
	}
	return agentsql.OpenPostgres(ctx, url, agentsql.Options{Secret: secret, AllowPowerfulRole: c.AllowPowerfulRole, Warn: warn})
}

// loginSecret makes the passwords of agents' Postgres logins.
func loginSecret(c config.Config) ([]byte, error) { return derivedSecret(c, "hob agentsql logins") }

// derivedSecret derives a secret for one purpose from the seal key: the same on every server that shares the key, and
// nothing else can be opened with it.
func derivedSecret(c config.Config, purpose string) ([]byte, error) {
	text := string(c.SealKey)
	if text == "" {
		b, err := os.ReadFile(filepath.Join(c.Data, sealKeyFile))
		if err != nil {
			return nil, fmt.Errorf("derive the secret for %s: %w", purpose, err)
		}
		text = string(b)
	}
	secret, err := hkdf.Key(sha256.New, []byte(strings.TrimSpace(text)), nil, purpose, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the secret for %s: %w", purpose, err)
	}
	return secret, nil
}

// close closes what is open, the last first.
func (p *parts) close() error {
	var errs []error
	if p.sandbox != nil {
		p.sandbox.Close()
	}
	if p.database != nil {
		errs = append(errs, p.database.Close())
	}
	if p.filesPlace != nil {
		errs = append(errs, p.filesPlace.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	if p.guard != nil {
		p.guard.Close()
	}
	return errors.Join(errs...)
}

// newLog writes to the terminal as text and elsewhere as JSON, unless --log says otherwise.
func newLog(c config.Config, w io.Writer) *slog.Logger {
	format := c.LogFormat
	if format == config.LogAuto {
		format = config.LogJSON
		if terminal(w) {
			format = config.LogText
		}
	}
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if format == config.LogText {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// defaultModel is what an agent of a workspace gets that is made without a model: what the workspace chose, else that of
// the first provider, with a warning where that is only the demo or where nobody serves it.
func (p *parts) defaultModel(ctx context.Context, ws hob.WorkspaceID) (model, warning string) {
	if ws != "" {
		chosen, err := p.settings.Value(ctx, ws, settings.AgentDefaultModel)
		if err == nil && chosen != "" {
			if _, err := p.models.Open(ctx, ws, chosen); err != nil && hob.KindOf(err) == hob.Invalid {
				warning = "the workspace's default model: " + err.Error()
			}
			return chosen, warning
		}
	}
	model, ok, err := p.models.DefaultFor(ctx, ws)
	if err != nil { // the store's; whoever asked meets it at once
		model, ok = p.models.Default()
	}
	if ok {
		return model, ""
	}
	var names []string
	for _, info := range p.models.Providers() {
		if info.Variables != "" {
			names = append(names, info.Variables)
		}
	}
	return model, "no model provider is configured, so the agent uses " + model + ", which plays a script; to connect a model add a " +
		"provider key, or set " + strings.Join(names, ", ") + " and restart the server"
}

// checkPrices says what is wrong with a workspace's prices.
func checkPrices(text string) error {
	_, err := provider.ParsePrices(text)
	return err
}

// providers are the model providers as the API shows them.
func (p *parts) providers() []api.Provider {
	var list []api.Provider
	for _, info := range p.models.Providers() {
		list = append(list, api.Provider{Name: info.Name, Paid: info.Configured && info.Variables != ""})
	}
	return list
}

var _ builtin.Database = projectDatabase{}

// keyLost tells of a database whose seal key is gone, before a new one is made that could not open anything in it.
func keyLost(c config.Config) error {
	if c.SealKey != "" || c.Database != "" {
		return nil
	}
	key, database := filepath.Join(c.Data, sealKeyFile), filepath.Join(c.Data, store.FileName)
	if exists(key) || !exists(database) {
		return nil
	}
	return hob.Errorf(hob.Invalid, "the seal key %s is missing, and the secrets in %s cannot be opened without it; "+
		"put it back from your backup, or set HOB_SEAL_KEY", key, database)
}

// openSeal opens the seal key, and makes one where nothing was sealed yet.
func openSeal(ctx context.Context, c config.Config) (*seal.Box, error) {
	if err := errors.Join(keyLost(c), keyWithOthers(ctx, c)); err != nil {
		return nil, err
	}
	box, err := seal.Open(filepath.Join(c.Data, sealKeyFile), string(c.SealKey))
	if err != nil {
		return nil, fmt.Errorf("open the seal key: %w", err)
	}
	return box, nil
}

// keyWithOthers tells of a Postgres database that another server has filled under its key, before a new one is made here
// that the database would refuse.
func keyWithOthers(ctx context.Context, c config.Config) error {
	key := filepath.Join(c.Data, sealKeyFile)
	if c.SealKey != "" || c.Database == "" || exists(key) {
		return nil
	}
	facts, err := store.Inspect(ctx, store.Config{DSN: c.Database})
	if err != nil || facts.Schema == 0 {
		return err
	}
	return hob.Errorf(hob.Invalid, "another server has filled this database under its seal key, and there is none here: all servers of "+
		"one database need one %s. It is the text of %s in the data folder of the first server; nothing was changed", seal.EnvKey, sealKeyFile)
}

// exists says whether there is something at a path; what cannot be looked at counts as there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
