package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"hob"
	"hob/internal/api"
	"hob/internal/engine"
	"hob/internal/provider"
	"hob/internal/seal"
	"hob/internal/settings"
	"hob/internal/storage"
	"hob/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const jwtSecret = "a secret of at least thirty-two bytes"

// world is a whole server over loopback: real store, real engine, a model that plays fixed deltas.
type world struct {
	t     *testing.T
	store *store.DB
	files *storage.Files
	// filesDir is the folder of the files' bytes.
	filesDir string
	engine   *engine.Engine
	handler  http.Handler
	server   *httptest.Server
	service  string // a service key's secret
	log      *logBook
	model    *player
}

// begin starts a server on SQLite. change, where not nil, adjusts its configuration.
func begin(t *testing.T, change func(*api.Config)) *world {
	t.Helper()
	return beginOn(t, "", change)
}

// beginOn starts a server on a database, "" for SQLite.
func beginOn(t *testing.T, dsn string, change func(*api.Config)) *world {
	t.Helper()
	dir := t.TempDir()
	box, err := seal.Open(filepath.Join(dir, "seal.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, log: &logBook{}, model: &player{release: make(chan struct{})}}
	if w.store, err = store.Open(t.Context(), store.Config{DSN: dsn, Dir: dir, Box: box}); err != nil {
		t.Fatal(err)
	}
	w.filesDir = filepath.Join(dir, "files")
	w.files = newFiles(t, w.store, w.filesDir)
	options, err := settings.New(settings.Config{Store: w.store})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	w.engine = engine.New(engine.Config{
		Store: w.store, Models: w.models, Toolsets: []hob.Toolset{clockSet{}}, Alone: true, Log: log,
	})
	c := api.Config{
		Store: w.store, Engine: w.engine, Models: w.models, Version: "1.2.3", JWTSecret: jwtSecret, Log: log,
		Builtins: builtins, CheckAssignment: checkAssignment, CheckURL: checkURL, Unavailable: unavailable,
		DefaultModel: func(context.Context, hob.WorkspaceID) (string, string) {
			return "scripted/demo", "no model is connected; set OPENAI_API_KEY"
		},
		Files: w.files, Settings: options, Providers: providers, ValidateKey: validateKey, Facts: provider.Facts{},
		CORSOrigins: []string{"https://app.example.com"},
		Limits:      api.Limits{Recheck: 50 * time.Millisecond},
	}
	if change != nil {
		change(&c)
	}
	w.handler = api.New(c)
	w.server = httptest.NewUnstartedServer(nil)
	w.server.Config = api.Server("", w.handler)
	w.server.Listener = api.Listen(w.server.Listener, api.DefaultConnLimits())
	w.server.Start()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() { defer close(served); w.engine.Serve(ctx) }()
	t.Cleanup(func() {
		w.model.end()
		w.server.Close()
		_ = api.Close(w.server.Config) // the streams that net/http gave away
		stop()
		<-served
		now, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		_ = w.engine.Drain(now)
		_ = w.store.Close()
	})
	w.service = w.key(hob.Key{Name: "service", Service: true})
	return w
}

// key makes an API key and returns its secret.
func (w *world) key(k hob.Key) string {
	w.t.Helper()
	secret, prefix, hash := api.NewSecret()
	k.Prefix = prefix
	if _, err := w.store.CreateKey(w.t.Context(), hob.System(hob.DefaultWorkspace), k, hash); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

func (w *world) scoped(scopes ...hob.Scope) string {
	return w.key(hob.Key{Name: "key", Scopes: scopes})
}

// revoke ends a key by its secret.
func (w *world) revoke(secret string) {
	w.t.Helper()
	sum := sha256.Sum256([]byte(secret))
	k, err := w.store.KeyByHash(w.t.Context(), sum[:])
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.RevokeKey(w.t.Context(), hob.System(hob.DefaultWorkspace), k.ID); err != nil {
		w.t.Fatal(err)
	}
}

// user is a signed token of an end user.
func user(t *testing.T, id string) string {
	return token(t, jwtSecret, jwt.MapClaims{"sub": id, "aud": "authenticated", "exp": time.Now().Add(time.Hour).Unix()})
}

func token(t *testing.T, secret string, claims jwt.MapClaims) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ask is a request of a test.
type ask struct {
	method, path, key, body string
	header                  map[string]string
}

func (w *world) request(a ask) *http.Request {
	w.t.Helper()
	var body io.Reader
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r, err := http.NewRequestWithContext(w.t.Context(), a.method, w.server.URL+a.path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if a.key != "" {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	for k, v := range a.header {
		r.Header.Set(k, v)
	}
	return r
}

// reply is an answer, read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (w *world) do(a ask) reply {
	w.t.Helper()
	answer, err := w.server.Client().Do(w.request(a))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, body}
}

// as decodes the answer after checking its status.
func as[T any](t *testing.T, r reply, status int) T {
	t.Helper()
	var v T
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	return v
}

// fault is the body of an error.
type fault struct {
	Error, Message, Code string
	Details              map[string]any
}

// wantFault checks that an answer is an error in the one form there is.
func wantFault(t *testing.T, r reply, status int, text string) fault {
	t.Helper()
	f := as[fault](t, r, status)
	if f.Error == "" || f.Error != f.Message || f.Code == "" {
		t.Errorf("error without its form: %s", r.body)
	}
	if !strings.Contains(f.Error, text) {
		t.Errorf("error %q, want one with %q", f.Error, text)
	}
	if kind := r.header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("content type %q, want application/json", kind)
	}
	return f
}

// agent makes an agent and returns its id.
func (w *world) agent(model string) hob.AgentID {
	w.t.Helper()
	a := as[hob.Agent](w.t, w.do(ask{"POST", "/api/agents", w.service, `{"name":"helper","model":"` + model + `"}`, nil}), 201)
	return a.ID
}

// models resolves to the player, whose behaviour the model's name picks.
func (w *world) models(_ context.Context, _ hob.WorkspaceID, model string) (hob.Model, error) {
	switch model {
	case "fixed", "slow", "steady", "broken", "calls", "twice", "long", "scripted/demo":
		return hob.Model{Provider: w.model, Name: "fixed", Model: model, Window: 100_000}, nil
	}
	if name, rest, _ := strings.Cut(model, "/"); name == "openrouter" || name == "mine" {
		return hob.Model{Provider: w.model, Name: name, Model: rest, Window: 100_000}, nil
	} else if name == "mistyped" { // as a registry does with a first part that names nobody
		return hob.Model{Provider: w.model, Name: "openai", Model: model, Window: 100_000}, nil
	}
	return hob.Model{}, hob.Errorf(hob.Invalid, "no provider serves the model %q", model)
}

// logBook keeps what was logged.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// metric reads one of the server's counters.
func (w *world) metric(name string) int {
	w.t.Helper()
	r := w.do(ask{"GET", "/metrics", w.service, "", nil})
	for line := range strings.Lines(string(r.body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				w.t.Fatal(err)
			}
			return n
		}
	}
	w.t.Fatalf("no metric %s in:\n%s", name, r.body)
	return 0
}
