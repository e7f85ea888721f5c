package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/api"
	"hob/internal/pgtest"
	"hob/internal/store"
)

const (
	seeded = `{"user_id":"11111111-1111-4111-8111-111111111111",
		"initial_messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`
	hooked   = `{"event":"PreToolUse","type":"http","config":{"url":"https://x.example/hook"},"colour":1}`
	forecast = `{"name":"forecast","endpoint":"https://x.example","colour":1,` + toolBody + `}`
)

// creations are requests that make something, and others of the same form, by route. GET of the same path lists what there
// is. $AGENT stands for an agent.
func creations() map[string][][2]string {
	return map[string][][2]string{
		"/api/agents":                 {{`{"name":"made","model":"fixed","colour":1}`, `{"name":"other","model":"fixed"}`}},
		"/api/agents/$AGENT/tools":    {{`{"tool_name":"clock","config_override":{"planet":1}}`, `{"tool_name":"database_query"}`}},
		"/api/agents/$AGENT/hooks":    {{hooked, `{"event":"PreToolUse","type":"approval","config":{}}`}},
		"/api/tools":                  {{forecast, strings.Replace(forecast, "forecast", "other", 1)}},
		"/api/keys":                   {{`{"name":"made"}`, `{"name":"other"}`}},
		"/api/ai-provider-keys":       {{`{"provider":"openai","api_key":"sk-0123456789"}`, `{"provider":"openai","api_key":"sk-9876543210"}`}},
		"/api/agents/$AGENT/sessions": {{seeded, `{}`}, {``, `{}`}},
	}
}

// eachCreation runs a test for every creating request, on a fresh server of each database.
func eachCreation(t *testing.T, run func(t *testing.T, w *world, path string, bodies [2]string)) {
	t.Helper()
	dsns := map[string]func(*testing.T) string{
		"sqlite":   func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string { t.Helper(); return pgtest.URL(t) },
	}
	for name, dsn := range dsns {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := beginOn(t, dsn(t), func(c *api.Config) { c.Limits.Off = true })
			for _, path := range slices.Sorted(maps.Keys(creations())) {
				for i, bodies := range creations()[path] {
					t.Run(fmt.Sprintf("POST %s %d", path, i), func(t *testing.T) {
						run(t, w, strings.Replace(path, "$AGENT", string(w.agent("fixed")), 1), bodies)
					})
				}
			}
		})
	}
}

func keyed(key string) map[string]string { return map[string]string{"Idempotency-Key": key} }

func (r reply) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// reused checks that an answer refuses a key that was used for another request.
func reused(t *testing.T, r reply) {
	t.Helper()
	if f := wantFault(t, r, 422, "Idempotency-Key"); f.Code != "idempotency_key_reused" {
		t.Errorf("code %s", f.Code)
	}
}

func TestCreating_RoutesAreMarkedDescribedAndTested(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	doc := as[struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
			Responses  map[string]json.RawMessage
		}
	}](t, w.do(ask{"GET", "/api/openapi.json", "", "", nil}), 200)
	for _, r := range api.Routes() {
		if made := r.Method == "POST" && r.Status == 201; made != r.Creates {
			t.Errorf("%s %s answers %d, and is a creating route: %t. A POST that answers 201 has create: in its row of routes.go, in place "+
				"of handle:; no other route has", r.Method, r.Path, r.Status, r.Creates)
		}
		if !r.Creates {
			continue
		}
		if _, ok := creations()[strings.Replace(r.Path, "{id}", "$AGENT", 1)]; !ok {
			t.Errorf("%s has no request in creations() above", r.Path)
		}
		op := doc.Paths[r.Path]["post"]
		if !slices.Contains(op.Parameters, struct{ Name, In string }{"Idempotency-Key", "header"}) || op.Responses["422"] == nil {
			t.Errorf("%s does not describe the Idempotency-Key: %+v", r.Path, op)
		}
	}
}

func TestIdempotency_ARepeatIsAnsweredTheSameAndMakesNothing(t *testing.T) {
	t.Parallel()
	eachCreation(t, func(t *testing.T, w *world, path string, bodies [2]string) {
		list := func() string { return string(w.do(ask{"GET", path, w.service, "", nil}).body) }
		before := list()
		request := ask{"POST", path, w.service, bodies[0], keyed("key-of:" + path)}
		first := w.do(request)
		if first.status != 201 || first.replayed() {
			t.Fatalf("status %d, replayed %t: %s", first.status, first.replayed(), first.body)
		}
		after := list()
		if before == after {
			t.Fatal("nothing was made")
		}
		anew := request
		if anew.body != "" {
			anew.body = " " + strings.Replace(anew.body, "{", "{\n", 1) + "\n" // the same, written in another way
		}
		for _, repeat := range []ask{request, anew} {
			again := w.do(repeat)
			if again.status != first.status || !bytes.Equal(again.body, first.body) || !again.replayed() {
				t.Errorf("status %d, replayed %t: %s\nwant %d: %s", again.status, again.replayed(), again.body, first.status, first.body)
			}
			if kind := again.header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("content type %q", kind)
			}
		}
		other := request
		other.body = bodies[1]
		reused(t, w.do(other))
		if diff := cmp.Diff(after, list()); diff != "" {
			t.Errorf("the repeats made something (-before +after):\n%s", diff)
		}
	})
}

func TestIdempotency_OfManyAtTheSameTimeOneMakes(t *testing.T) {
	t.Parallel()
	eachCreation(t, func(t *testing.T, w *world, path string, bodies [2]string) {
		const callers = 16
		answers := make([]reply, callers)
		errs := make([]error, callers)
		requests := make([]ask, callers)
		for i := range requests {
			requests[i] = ask{"POST", path, w.service, bodies[0], keyed("k")}
		}
		var wg sync.WaitGroup
		for i, a := range requests {
			r := w.request(a)
			wg.Go(func() {
				answer, err := w.server.Client().Do(r)
				if err != nil {
					errs[i] = err
					return
				}
				body, err := io.ReadAll(answer.Body)
				answers[i], errs[i] = reply{answer.StatusCode, answer.Header, body}, errors.Join(err, answer.Body.Close())
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		fresh := 0
		for _, a := range answers {
			if !a.replayed() {
				fresh++
			}
			if a.status != 201 || !bytes.Equal(a.body, answers[0].body) {
				t.Errorf("status %d: %s\nanother got %s", a.status, a.body, answers[0].body)
			}
		}
		if fresh != 1 {
			t.Errorf("%d of %d requests made something, want 1", fresh, callers)
		}
	})
}

func TestIdempotency_AFailureLeavesTheKeyFree(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent := string(w.agent("fixed"))
	w.do(ask{"POST", "/api/tools", w.service, forecast, nil})
	for path, c := range map[string]struct {
		bad    string
		status int
		good   string
	}{
		"/api/agents":                        {`{"model":"fixed"}`, 400, `{"name":"a"}`},
		"/api/agents/" + agent + "/tools":    {`{"tool_name":"no"}`, 400, `{"tool_name":"clock"}`},
		"/api/tools":                         {forecast, 409, strings.Replace(forecast, "forecast", "free", 1)}, // refused by the store
		"/api/keys":                          {`{"name":"a"`, 400, `{"name":"a"}`},
		"/api/ai-provider-keys":              {`{"provider":"openai","api_key":"refused-by-them"}`, 400, `{"provider":"openai","api_key":"sk-0123456789"}`},
		"/api/agents/" + agent + "/sessions": {`{"initial_messages":[{"role":"assistant","content":"x"}]}`, 400, `{}`},
	} {
		request := ask{"POST", path, w.service, c.bad, keyed("k")}
		for range 2 {
			if r := w.do(request); r.status != c.status || r.replayed() {
				t.Errorf("%s: status %d, replayed %t, want %d: %s", path, r.status, r.replayed(), c.status, r.body)
			}
		}
		request.body = c.good
		if r := w.do(request); r.status != 201 || r.replayed() {
			t.Errorf("%s, corrected: status %d, replayed %t: %s", path, r.status, r.replayed(), r.body)
		}
	}
}

func TestIdempotency_KeysOfOthersAndOfOtherPathsDoNotMeet(t *testing.T) {
	t.Parallel()
	w := begin(t, nil)
	agent, other := w.agent("fixed"), w.agent("fixed")
	bound := w.key(hob.Key{Name: "bound", Scopes: []hob.Scope{hob.ScopeRun}, Agent: agent})
	seen := map[string]string{}
	for _, c := range []struct{ who, path, key, body string }{
		{"the service key", "/api/agents/" + string(agent) + "/sessions", w.service, ``},
		{"for another agent", "/api/agents/" + string(other) + "/sessions", w.service, `{"user_id":"11111111-1111-4111-8111-111111111111"}`},
		{"a key", "/api/agents/" + string(agent) + "/sessions", w.scoped(hob.ScopeRun), `{}`},
		{"a bound key", "/api/agents/" + string(agent) + "/sessions", bound, ``},
		{"a user", "/api/agents/" + string(agent) + "/sessions", user(t, "u1"), ``},
		{"another user", "/api/agents/" + string(agent) + "/sessions", user(t, "u2"), ``},
		{"an agent", "/api/agents", w.service, `{"name":"a"}`},
		{"a key to be made", "/api/keys", w.service, `{"name":"a"}`},
	} {
		request := ask{"POST", c.path, c.key, c.body, keyed("the-same")}
		r := w.do(request)
		if r.status != 201 || r.replayed() {
			t.Errorf("%s: status %d, replayed %t: %s", c.who, r.status, r.replayed(), r.body)
		}
		if before, taken := seen[string(r.body)]; taken {
			t.Errorf("%s gets the answer of %s", c.who, before)
		}
		seen[string(r.body)] = c.who
		if again := w.do(request); !again.replayed() || !bytes.Equal(again.body, r.body) {
			t.Errorf("%s, again: replayed %t: %s", c.who, again.replayed(), again.body)
		}
	}
	// A run has keys of its own.
	as[ran](t, w.do(ask{"POST", "/api/agents/" + string(agent) + "/run", w.service, `{"message":"hi"}`, keyed("the-same")}), 200)
}

func TestIdempotency_TheHeaderIsCheckedWhereItCounts(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.Off = true })
	bad := map[string][]string{
		"empty": {""}, "a blank": {"a b"}, "not ASCII": {"ü"}, "256 characters": {strings.Repeat("x", 256)}, "two of them": {"a", "b"},
	}
	s := w.scene(w.service)
	for _, route := range api.Routes() {
		if route.Method == "GET" || strings.Contains(route.Path, "/run") && !strings.Contains(route.Path, "/runs/") {
			continue
		}
		for name, values := range bad {
			r := w.request(ask{route.Method, s.fill(route.Path), w.service, "{", nil})
			r.Header["Idempotency-Key"] = values
			answer, err := w.server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if refused := bytes.Contains(body, []byte("invalid_idempotency_key")); refused != route.Creates || refused && answer.StatusCode != 400 {
				t.Errorf("%s %s with a key that is %s: %d %s", route.Method, route.Path, name, answer.StatusCode, body)
			}
		}
		s = w.scene(w.service) // what was named may be deleted now
	}
	long := w.do(ask{"POST", "/api/agents", w.service, `{"name":"a"}`, keyed(strings.Repeat("~", 255))})
	as[hob.Agent](t, long, 201)
}

// brittle is a store that loses the answers of Once, before or after the transaction.
type brittle struct {
	*store.DB
	before, after atomic.Bool
	keep          atomic.Int64
}

// Once fails as a database does that goes away.
func (b *brittle) Once(ctx context.Context, key hob.Idempotency, do func(context.Context, hob.Store) (hob.Answer, error)) (hob.Answer, bool, error) {
	gone := hob.Errorf(hob.Unavailable, "the database cannot be reached now; try again")
	b.keep.Store(int64(key.Keep))
	wrote := false
	a, replayed, err := b.DB.Once(ctx, key, func(ctx context.Context, s hob.Store) (hob.Answer, error) {
		a, err := do(ctx, s)
		if wrote = err == nil; wrote && b.before.Load() {
			return a, gone
		}
		return a, err
	})
	if wrote && b.after.Load() {
		return hob.Answer{}, false, gone
	}
	return a, replayed, err
}

func TestIdempotency_AnAnswerIsKeptExactlyIfTheThingExists(t *testing.T) {
	t.Parallel()
	var b *brittle
	w := begin(t, func(c *api.Config) {
		db, _ := c.Store.(*store.DB)
		b = &brittle{DB: db}
		c.Store = b
	})
	count := func() int64 {
		return as[struct{ Total int64 }](t, w.do(ask{"GET", "/api/agents", w.service, "", nil}), 200).Total
	}
	request := ask{"POST", "/api/agents", w.service, `{"name":"a"}`, keyed("k")}
	b.before.Store(true)
	wantFault(t, w.do(request), 503, "")
	if n := count(); n != 0 {
		t.Errorf("%d agents after a transaction that failed", n)
	}
	b.before.Store(false)
	b.after.Store(true)
	wantFault(t, w.do(request), 503, "")
	if n := count(); n != 1 {
		t.Errorf("%d agents after an answer that was lost, want 1", n)
	}
	b.after.Store(false)
	r := w.do(request)
	a := as[hob.Agent](t, r, 201)
	if !r.replayed() || count() != 1 {
		t.Errorf("the repeat is replayed: %t, and there are %d agents", r.replayed(), count())
	}
	as[hob.Agent](t, w.do(ask{"GET", "/api/agents/" + string(a.ID), w.service, "", nil}), 200)
	if keep := time.Duration(b.keep.Load()); keep != 24*time.Hour {
		t.Errorf("answers are kept %v", keep)
	}
}

func TestIdempotency_ARepeatedKeyShowsItsSecretAgainAndNoFileDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := beginOn(t, filepath.Join(dir, "hob.db"), nil)
	request := ask{"POST", "/api/keys", w.service, `{"name":"visible-name"}`, keyed("visible-key")}
	type made struct{ Secret string }
	first := as[made](t, w.do(request), 201)
	if again := as[made](t, w.do(request), 201); again != first || len(first.Secret) < 40 {
		t.Errorf("the secret is %q, then %q", first.Secret, again.Secret)
	}
	as[any](t, w.do(ask{"GET", "/api/me", first.Secret, "", nil}), 200)
	var all []byte
	for _, name := range []string{"hob.db", "hob.db-wal"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	if !bytes.Contains(all, []byte("visible-name")) || !bytes.Contains(all, []byte("visible-key")) {
		t.Fatal("the files do not hold the rows at all")
	}
	if bytes.Contains(all, []byte(first.Secret[12:])) {
		t.Error("the files hold the secret")
	}
}

func TestIdempotency_ARepeatIsLetInAsAnyRequest(t *testing.T) {
	t.Parallel()
	now := &struct{ atomic.Int64 }{}
	w := begin(t, func(c *api.Config) {
		c.Limits.Rate = api.Rate{PerSecond: 0.001, Burst: 3}
		c.Clock = func() time.Time { return hob.SystemClock().Add(time.Duration(now.Load())) }
	})
	key := w.scoped(hob.ScopeConfigure)
	request := ask{"POST", "/api/agents", key, `{"name":"a"}`, keyed("k")}
	as[hob.Agent](t, w.do(request), 201)
	stranger := request
	stranger.key = "hob_0000"
	wantFault(t, w.do(stranger), 401, "")
	reader := request
	reader.key = w.scoped(hob.ScopeRead)
	wantFault(t, w.do(reader), 403, "")
	for range 2 {
		as[hob.Agent](t, w.do(request), 201)
	}
	wantFault(t, w.do(request), 429, "")
	w.revoke(key)
	now.Store(int64(time.Hour)) // past the rate, and past what is believed of the key
	wantFault(t, w.do(request), 401, "")
}

// A repeat is answered as the first request was, also where the same request would not be right any more.
func TestIdempotency_ARepeatIsNotCheckedAnew(t *testing.T) {
	t.Parallel()
	var passed, asked atomic.Int64
	w := begin(t, func(c *api.Config) {
		c.Clock = func() time.Time { return hob.SystemClock().Add(time.Duration(passed.Load())) }
		validate := c.ValidateKey
		c.ValidateKey = func(ctx context.Context, k hob.ProviderKey) (bool, string, error) {
			if asked.Add(1) > 1 {
				return false, "", hob.Errorf(hob.Invalid, "openai says 401")
			}
			return validate(ctx, k)
		}
	})
	agent := "/api/agents/" + string(w.agent("fixed"))
	soon := hob.SystemClock().Add(time.Minute).Format(time.RFC3339)
	requests := []ask{
		{"POST", "/api/keys", w.service, `{"name":"a","expires_at":"` + soon + `"}`, keyed("k")},
		{"POST", agent + "/tools", w.service, `{"tool_name":"clock"}`, keyed("k")},
		{"POST", "/api/ai-provider-keys", w.service, `{"provider":"openai","api_key":"sk-0123456789"}`, keyed("k")},
	}
	var first []reply
	for _, r := range requests {
		first = append(first, w.do(r))
	}
	as[any](t, w.do(ask{"DELETE", agent, w.service, "", nil}), 200)
	passed.Store(int64(time.Hour))
	for i, r := range requests {
		again := w.do(r)
		if first[i].status != 201 || again.status != 201 || !bytes.Equal(again.body, first[i].body) || !again.replayed() {
			t.Errorf("%s: %d %s, then %d %s", r.path, first[i].status, first[i].body, again.status, again.body)
		}
		r.header = nil // without the key it is another request, and wrong by now
		if fresh := w.do(r); fresh.status < 400 {
			t.Errorf("%s without the key: status %d", r.path, fresh.status)
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the provider was asked %d times, want once and once more without the key", n)
	}
}

func TestIdempotency_ABodyThatIsTooLargeIsRefusedFirst(t *testing.T) {
	t.Parallel()
	w := begin(t, func(c *api.Config) { c.Limits.Body = 100 })
	request := ask{"POST", "/api/agents", w.service, `{"name":"` + strings.Repeat("x", 100) + `"}`, keyed("k")}
	wantFault(t, w.do(request), 413, "100 bytes")
	request.body = `{"name":"x"}`
	as[hob.Agent](t, w.do(request), 201)
}
