package builtin_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hob"
	"hob/internal/builtin"
	"hob/internal/egress"
)

const oneTable = `{"schemas":{"main":["t"]}}`

func TestDatabaseQuery_IsLoadedOnlyWithTables(t *testing.T) {
	t.Parallel()
	up := &tables{text: "main.t(id INTEGER PRIMARY KEY)", count: 1}
	tests := map[string]struct {
		deps   builtin.Deps
		config string
		want   string // of the warning
	}{
		"no schemas":    {builtin.Deps{Database: up}, ``, "set config_override.schemas"},
		"empty schemas": {builtin.Deps{Database: up}, `{"schemas":{}}`, "set config_override.schemas"},
		"malformed":     {builtin.Deps{Database: up}, `{"schemas":5}`, "schemas must be"},
		"no such table": {builtin.Deps{Database: &tables{}}, oneTable, "none of the tables in config_override.schemas exists"},
		"down":          {builtin.Deps{Database: &tables{err: errDown}}, oneTable, "cannot be looked at now: the database cannot answer now"},
		"slow":          {builtin.Deps{Database: &tables{err: context.DeadlineExceeded}}, oneTable, "did not answer in time"},
		"typed":         {builtin.Deps{Database: &tables{err: hob.Errorf(hob.Invalid, "table t has no columns")}}, oneTable, "table t has no columns"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tools, warnings := load(t, newSet(t, tt.deps), assign("database_query", tt.config))
			if len(tools) != 0 || len(warnings) != 1 || !strings.Contains(warnings[0], tt.want) || strings.Contains(warnings[0], "10.1.2.3") {
				t.Errorf("%d tools, warnings %q; want %q", len(tools), warnings, tt.want)
			}
		})
	}
	spec := one(t, newSet(t, builtin.Deps{Database: up}), assign("database_query", oneTable)).Spec()
	if !strings.HasSuffix(spec.Description, "\nmain.t(id INTEGER PRIMARY KEY)") || spec.Pinned != nil {
		t.Errorf("%+v", spec)
	}
}

func TestDatabaseQuery_Results(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		db   *tables
		want hob.Result
	}{
		"rows":      {&tables{rows: `[{"a":1}]`}, hob.Result{Text: `[{"a":1}]`}},
		"none":      {&tables{}, hob.Result{Text: `[]`}},
		"truncated": {&tables{rows: `[{"a":1}]`, truncated: true}, hob.Result{Text: `{"rows":[{"a":1}],"truncated":true}`}},
		"refused":   {&tables{queryErr: hob.Errorf(hob.Invalid, "Only SELECT queries are allowed")}, hob.Result{Text: `{"error":"Only SELECT queries are allowed"}`, IsError: true}},
		"internal":  {&tables{queryErr: hob.Wrap("query", errDown)}, hob.Result{Text: `{"error":"the database cannot answer now"}`, IsError: true, Free: true}},
		"kind":      {&tables{queryErr: hob.Errorf(hob.Internal, "dsn=hush")}, hob.Result{Text: `{"error":"the database cannot answer now"}`, IsError: true, Free: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.db.count = 1
			r := one(t, newSet(t, builtin.Deps{Database: tt.db}), assign("database_query", oneTable))
			if res := call(t, r, `{"query":"SELECT 1"}`); res.Text != tt.want.Text || res.IsError != tt.want.IsError {
				t.Errorf("%+v, want %+v", res, tt.want)
			}
		})
	}
}

// clocked returns a toolset whose clock the test turns.
func clocked(t *testing.T, db *tables) (s *builtin.Set, turn func(time.Duration)) {
	t.Helper()
	var mu sync.Mutex
	now := moment
	guard := egress.New(egress.Config{})
	t.Cleanup(guard.Close)
	s = builtin.New(builtin.Deps{Egress: guard, Database: db, Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	return s, func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
}

func TestDatabaseQuery_TablesAreDescribedBrieflyPerGrant(t *testing.T) {
	t.Parallel()
	db := &tables{count: 1}
	s, turn := clocked(t, db)
	expect := func(when string, want int64) {
		t.Helper()
		if got := db.described.Load(); got != want {
			t.Errorf("%s: described %d times, want %d", when, got, want)
		}
	}
	for range 3 {
		_ = one(t, s, assign("database_query", oneTable))
	}
	expect("three runs", 1)
	_ = one(t, s, assign("database_query", ` {"rules":[],"schemas":{"main":["t"]}}`))
	expect("the same grant written otherwise", 1)
	_ = one(t, s, assign("database_query", `{"schemas":{"main":["t","u"]}}`))
	expect("another grant", 2)
	turn(31 * time.Second)
	_ = one(t, s, assign("database_query", oneTable))
	expect("half a minute later", 3)
}

func TestDatabaseQuery_AFailedDescriptionIsTriedAgain(t *testing.T) {
	t.Parallel()
	db := &tables{count: 1, err: errDown}
	s, _ := clocked(t, db)
	_, _ = load(t, s, assign("database_query", oneTable))
	db.err = nil
	_ = one(t, s, assign("database_query", oneTable))
}

func TestDatabaseQuery_RunsThatStartTogetherDescribeOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &tables{count: 1, hold: make(chan struct{})}
		s, _ := clocked(t, db)
		for range 8 {
			go func() {
				if tools, _, err := s.Tools(t.Context(), grant(assign("database_query", oneTable))); err != nil || len(tools) != 1 {
					t.Errorf("%d tools, error %v", len(tools), err)
				}
			}()
		}
		synctest.Wait()
		close(db.hold)
		synctest.Wait()
		if got := db.described.Load(); got != 1 {
			t.Errorf("described %d times", got)
		}
	})
}

// Whoever waits for another run's description is not hurt when that run is cancelled.
func TestDatabaseQuery_ACancelledDescriptionHurtsNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &tables{count: 1, hold: make(chan struct{})}
		s, _ := clocked(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			if _, _, err := s.Tools(ctx, grant(assign("database_query", oneTable))); !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled one: %v", err)
			}
		}()
		synctest.Wait()
		go func() {
			if tools, warnings, err := s.Tools(t.Context(), grant(assign("database_query", oneTable))); err != nil || len(tools) != 1 {
				t.Errorf("the waiting one got %d tools, warnings %q, error %v", len(tools), warnings, err)
			}
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(db.hold)
		synctest.Wait()
		if got := db.described.Load(); got != 2 {
			t.Errorf("described %d times", got)
		}
	})
}

// Who waits for another run's description leaves at once when its own run is cancelled; the other goes on.
func TestDatabaseQuery_AWaitingStartCanBeCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &tables{count: 1, hold: make(chan struct{})}
		s, _ := clocked(t, db)
		go func() {
			if tools, _, err := s.Tools(t.Context(), grant(assign("database_query", oneTable))); err != nil || len(tools) != 1 {
				t.Errorf("the first one: %d tools, error %v", len(tools), err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := s.Tools(ctx, grant(assign("database_query", oneTable))); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		close(db.hold)
		synctest.Wait()
	})
}

// A database that hangs delays the start of a run by five seconds at most, once for all that wait.
func TestDatabaseQuery_AHangingDatabaseDoesNotHoldRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := &tables{hold: make(chan struct{})}
		s, _ := clocked(t, db)
		began := time.Now()
		for range 3 {
			go func() {
				_, warnings, err := s.Tools(t.Context(), grant(assign("database_query", oneTable)))
				if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "did not answer in time") {
					t.Errorf("warnings %q, error %v", warnings, err)
				}
				if waited := time.Since(began); waited != 5*time.Second {
					t.Errorf("waited %s", waited)
				}
			}()
		}
		time.Sleep(10 * time.Second)
		if got := db.described.Load(); got != 1 {
			t.Errorf("described %d times", got)
		}
	})
}
