package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
)

func TestDatabaseTools_AreOfferedWithoutADatabaseAndSayWhy(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{"": "database tools are off", "no CREATEROLE": "database tools are off: no CREATEROLE"} {
		s := newSet(t, builtin.Deps{DatabaseOff: reason})
		for tool, want := range map[string]string{"database_query": `{"error":"` + text + `"}`, "database_write": `{"success":false,"message":"` + text + `"}`} {
			r := one(t, s, assign(tool, oneTable))
			res := call(t, r, `{"query":"SELECT 1","table":"t","operation":"delete"}`)
			if diff := cmp.Diff(hob.Result{Text: want, IsError: true, Free: true}, res); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tool, diff)
			}
			if got := s.Unavailable(t.Context(), hob.DefaultWorkspace, hob.Tool{Name: tool, Type: hob.BuiltinTool}); got != text {
				t.Errorf("%s is unavailable because %q, want %q", tool, got, text)
			}
			if p, can := r.(hob.Previewer); can {
				if _, err := p.Preview(t.Context(), callOf(r, `{}`)); hob.KindOf(err) != hob.Unavailable {
					t.Errorf("preview: %v", err)
				}
			}
		}
	}
}

func TestDatabaseWrite_Results(t *testing.T) {
	t.Parallel()
	rows := json.RawMessage(`[` + strings.TrimSuffix(strings.Repeat(`{"id":12345},`, 8000), ",") + `]`)
	tests := map[string]struct {
		db   *tables
		want hob.Result
	}{
		"done":     {&tables{written: builtin.DatabaseWritten{Rows: 3}}, hob.Result{Text: `{"success":true,"rows_affected":3,"message":"insert completed."}`}},
		"columns":  {&tables{written: builtin.DatabaseWritten{Rows: 1, Returned: json.RawMessage(`[{"id":7}]`)}}, hob.Result{Text: `{"success":true,"rows_affected":1,"message":"insert completed.","rows":[{"id":7}]}`}},
		"cut":      {&tables{written: builtin.DatabaseWritten{Rows: 2, Returned: json.RawMessage(`[]`), Truncated: true}}, hob.Result{Text: `{"success":true,"rows_affected":2,"message":"insert completed.","rows":[],"truncated":true}`}},
		"refused":  {&tables{queryErr: hob.Errorf(hob.Invalid, "Table 'x' not found.")}, hob.Result{Text: `{"success":false,"message":"Table 'x' not found."}`, IsError: true}},
		"down":     {&tables{queryErr: hob.Wrap("write", errDown)}, hob.Result{Text: `{"success":false,"message":"the database cannot answer now"}`, IsError: true, Free: true}},
		"busy":     {&tables{queryErr: hob.Errorf(hob.Unavailable, "locked")}, hob.Result{Text: `{"success":false,"message":"locked"}`, IsError: true, Free: true}},
		"unknown":  {&tables{queryErr: hob.Errorf(hob.Unavailable, "it may have been made").WithCode(builtin.CodeOutcomeUnknown)}, hob.Result{Text: `{"success":false,"message":"it may have been made"}`, IsError: true, Unknown: true}},
		"too long": {&tables{written: builtin.DatabaseWritten{Rows: 8000, Returned: rows}}, hob.Result{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.db.count = 1
			r := one(t, newSet(t, builtin.Deps{Database: tt.db}), assign("database_write", oneTable))
			res := call(t, r, `{"table":"t","operation":"insert","data":{"a":1}}`)
			if name == "too long" {
				if len(res.Text) > builtin.DefaultMaxResult || !json.Valid([]byte(res.Text)) || !strings.HasSuffix(res.Text, `,"truncated":true}`) || res.IsError {
					t.Errorf("%d bytes: %.100s", len(res.Text), res.Text)
				}
				return
			}
			if diff := cmp.Diff(tt.want, res); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A change that was made is told, though the run ended meanwhile; one that was not is not.
func TestDatabaseWrite_TellsWhatWasDoneWhenTheRunEnds(t *testing.T) {
	t.Parallel()
	db := &tables{count: 1}
	r := one(t, newSet(t, builtin.Deps{Database: db}), assign("database_write", oneTable))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Call(gone, callOf(r, `{"table":"t","operation":"delete"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("not done: %v", err)
	}
}

func TestDatabaseWrite_HandsOnWhatTheAssignmentSays(t *testing.T) {
	t.Parallel()
	db := &tables{count: 1, text: "t(a)", rows: `{"operation":"delete"}`}
	s := newSet(t, builtin.Deps{Database: db})
	r := one(t, s, assign("database_write", `{"schemas":{"main":["t","u"]},"operations":{"main.t":["insert","delete"]},"columns":{"main.t":["a"]},
		"max_rows_affected":7,"confirm_side_effects":true,"timeout_seconds":2.5}`))
	args := `{"table":"t","operation":"delete","where":{"a":[1,null]},"returning":["a"]}`
	_ = call(t, r, args)
	want := builtin.DatabaseChange{
		Grant: builtin.DatabaseGrant{
			Tables: map[string][]string{"main": {"t", "u"}}, SideEffects: true,
			Operations: map[string][]string{"main.t": {"insert", "delete"}, "main.u": {}}, Columns: map[string][]string{"main.t": {"a"}},
		},
		Call: callOf(r, args), Table: "t", Operation: "delete", Where: json.RawMessage(`{"a":[1,null]}`), Returning: []string{"a"},
		Rows: 7, Timeout: 2500 * time.Millisecond,
	}
	if diff := cmp.Diff(want, db.change); diff != "" {
		t.Errorf("the change (-want +got):\n%s", diff)
	}
	db.change = builtin.DatabaseChange{}
	p, err := r.(hob.Previewer).Preview(t.Context(), callOf(r, args))
	if diff := cmp.Diff(want, db.change); err != nil || string(p) != db.rows || diff != "" {
		t.Errorf("the preview %s, %v (-want +got):\n%s", p, err, diff)
	}
	if spec := r.Spec(); spec.Timeout < 27*time.Second || !strings.HasSuffix(spec.Description, "\nt(a)") || spec.Recovery != hob.RecoverLocal || spec.Effect != hob.EffectWrite {
		t.Errorf("%+v", spec)
	}
	q := one(t, s, assign("database_query", `{"schemas":{"main":["t"]},"max_rows":5,"timeout_seconds":60}`))
	_ = call(t, q, `{"query":"SELECT 1"}`)
	if db.query.Rows != 5 || db.query.Timeout != time.Minute || q.Spec().Timeout < time.Minute {
		t.Errorf("the query %+v, time of the call %s", db.query, q.Spec().Timeout)
	}
	q = one(t, s, assign("database_write", `{"schemas":{"main":["t"]},"operations":["insert"]}`))
	_ = call(t, q, args)
	if diff := cmp.Diff(map[string][]string{"main.t": {"insert"}}, db.change.Grant.Operations); diff != "" {
		t.Errorf("one list for all (-want +got):\n%s", diff)
	}
}

func TestDatabaseTools_BadKeysAreRefusedWhenWritten(t *testing.T) {
	t.Parallel()
	s := newSet(t, builtin.Deps{Database: &tables{count: 1}})
	for config, want := range map[string]string{
		`"operations":[]`:                   "config_override.operations must list at least one",
		`"operations":["upsert"]`:           `config_override.operations has "upsert"`,
		`"operations":"insert"`:             "config_override.operations must be a list",
		`"operations":{"main.t":"insert"}`:  "config_override.operations must be a list",
		`"operations":{"main.t":["merge"]}`: `config_override.operations has "merge"`,
		`"operations":{"t":["insert"]}`:     `config_override.operations names "t"`,
		`"columns":["a"]`:                   "config_override.columns must be an object",
		`"columns":{"main.t":[]}`:           "config_override.columns lists no column",
		`"columns":{"main.t":["a;b"]}`:      `config_override.columns has "a;b"`,
		`"columns":{"main.x":["a"]}`:        `config_override.columns names "main.x"`,
		`"max_rows_affected":0`:             "config_override.max_rows_affected must be a whole number from 1 to 10000",
		`"max_rows_affected":10001`:         "config_override.max_rows_affected must be",
		`"max_rows_affected":"5"`:           "config_override.max_rows_affected must be",
		`"confirm_side_effects":"yes"`:      "config_override.confirm_side_effects must be true or false",
		`"timeout_seconds":301`:             "config_override.timeout_seconds must be",
		`"operation":"merge"`:               "config_override.operation",
	} {
		_, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_write", json.RawMessage(`{"schemas":{"main":["t"]},`+config+`}`))
		checkInvalid(t, err, want)
	}
	for config, want := range map[string]string{
		`"max_rows":0`: "config_override.max_rows must be a whole number from 1 to 100000", `"timeout_seconds":"1"`: "config_override.timeout_seconds must be",
	} {
		_, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_query", json.RawMessage(`{"schemas":{"main":["t"]},`+config+`}`))
		checkInvalid(t, err, want)
	}
}

func TestDatabaseWrite_SideEffectsAreNamedWhenAssigned(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		``:                             "changes that go on beyond the grant will be refused, unless config_override.confirm_side_effects is true: delete on a goes on; b",
		`,"confirm_side_effects":true`: "config_override.confirm_side_effects allows changes to go on beyond the grant: delete on a goes on; b",
	} {
		s := newSet(t, builtin.Deps{Database: &tables{count: 1, effects: []string{"delete on a goes on", "b"}}})
		warning, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_write", json.RawMessage(`{"schemas":{"main":["t"]}`+config+`}`))
		if err != nil || warning != want {
			t.Errorf("warning %q, %v, want %q", warning, err, want)
		}
	}
	s := newSet(t, builtin.Deps{Database: &tables{count: 1}})
	if warning, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_write", json.RawMessage(oneTable)); err != nil || warning != "" {
		t.Errorf("without any: %q, %v", warning, err)
	}
	if warning, err := s.CheckAssignment(t.Context(), hob.DefaultWorkspace, "database_write", nil); err != nil || !strings.Contains(warning, "set config_override.schemas") {
		t.Errorf("without tables: %q, %v", warning, err)
	}
}

func TestDatabaseWrite_OnARealDatabase(t *testing.T) {
	t.Parallel()
	r := one(t, sample(t), assign("database_write", `{"schemas":{"main":["orders","products"]}}`))
	if want := "; allowed: insert, update, delete; insert needs: customer_id, ordered_on; filled in by the database: id"; !strings.Contains(r.Spec().Description, want) {
		t.Errorf("%q lacks %q", r.Spec().Description, want)
	}
	for _, tc := range []struct{ args, want string }{
		{`{"table":"orders","operation":"insert","data":{"customer_id":1,"ordered_on":"2025-07-01"},"returning":["id"]}`, `{"success":true,"rows_affected":1,"message":"insert completed.","rows":[{"id":61}]}`},
		{`{"table":"main.orders","operation":"update","data":{"note":"x"},"where":{"id":61}}`, `{"success":true,"rows_affected":1,"message":"update completed."}`},
		{`{"table":"orders","operation":"delete","where":{"note":"x","id":61}}`, `{"success":true,"rows_affected":1,"message":"delete completed."}`},
		{`{"table":"orders","operation":"delete"}`, `{"success":false,"message":"DELETE requires non-empty where (mass deletes not allowed)."}`},
		{`{"table":"orders","operation":"update","where":{"id":1}}`, `{"success":false,"message":"UPDATE requires non-empty data."}`},
		{`{"table":"customers","operation":"delete","where":{"id":1}}`, `{"success":false,"message":"Table 'customers' not found. Available tables: main.orders, main.products"}`},
	} {
		c := callOf(r, tc.args)
		c.Key = tc.args
		res, err := r.Call(t.Context(), c)
		if err != nil || res.Text != tc.want || res.IsError != strings.Contains(tc.want, "false") {
			t.Errorf("%s: %+v, %v, want %s", tc.args, res, err, tc.want)
		}
	}
}
