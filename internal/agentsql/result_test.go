package agentsql

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"
)

func TestColumnKeys_LoseNoValue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ names, want []string }{
		{[]string{"a", "b"}, []string{"a", "b"}},
		{[]string{"a", "a", "a"}, []string{"a", "a_2", "a_3"}},
		{[]string{"a", "a_2", "a"}, []string{"a", "a_2", "a_3"}},
		{[]string{"a", "a", "a_2"}, []string{"a", "a_3", "a_2"}},
		{[]string{"", ""}, []string{"", "_2"}},
	} {
		got := columnKeys(tc.names)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q (-want +got)\n%s", tc.names, diff)
		}
	}
}

func TestPostgresValue_IsValidJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		oid  uint32
		text string
		want string
	}{
		{pgtype.Int8OID, "9223372036854775807", "9223372036854775807"},
		{pgtype.NumericOID, "1.50", "1.50"},
		{pgtype.NumericOID, "NaN", `"NaN"`},
		{pgtype.Float8OID, "1e+20", "1e+20"},
		{pgtype.Float8OID, "-Infinity", `"-Infinity"`},
		{pgtype.BoolOID, "t", "true"},
		{pgtype.BoolOID, "f", "false"},
		{pgtype.JSONOID, "{\n \"a\" : 1 }", `{"a":1}`},
		{pgtype.TextOID, "a\"b\n<c>", `"a\"b\n<c>"`},
		{pgtype.ByteaOID, `\x00ff`, `"\\x00ff"`},
		{pgtype.Int4ArrayOID, "{1,NULL,{2}}", "[1,null,[2]]"},
		{pgtype.Int4ArrayOID, "{}", "[]"},
		{pgtype.Int4ArrayOID, "[0:1]={1,2}", `"[0:1]={1,2}"`},
		{pgtype.TextArrayOID, `{a,"NULL",NULL,"x,\"y\\","",b c}`, `["a","NULL",null,"x,\"y\\","","b c"]`},
		{pgtype.TextArrayOID, `{"a`, `"{\"a"`},
		{pgtype.TextArrayOID, `{a`, `"{a"`},
		{pgtype.TextArrayOID, `{a}}`, `"{a}}"`},
		{pgtype.BoolArrayOID, "{t,f}", "[true,false]"},
		{pgtype.JSONBArrayOID, `{"{\"a\": 1}"}`, `[{"a":1}]`},
		{pgtype.DateOID, "2025-01-01", `"2025-01-01"`},
	} {
		b := newBuilder([]string{"v"}, Limits{}.withDefaults())
		b.add([]value{postgresValue(tc.oid, nil)(tc.text)})
		if got, want := string(b.rows().JSON), `[{"v":`+tc.want+`}]`; got != want || !json.Valid([]byte(got)) {
			t.Errorf("%d %s: %s, want %s", tc.oid, tc.text, got, want)
		}
	}
}

func TestFloatValue_IsANumberOrAText(t *testing.T) {
	t.Parallel()
	for f, want := range map[float64]string{
		1: "1.0", 2.5: "2.5", -0.25: "-0.25", 1e300: "1e+300", 1e-9: "1e-09", 0: "0.0",
	} {
		if got := string(floatValue(f).raw); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
	if v := floatValue(math.Inf(1)); v.raw != nil || v.text != "+Inf" {
		t.Errorf("infinity: %+v", v)
	}
}

func TestLimits_HaveDefaultsAndCeilings(t *testing.T) {
	t.Parallel()
	want := Limits{Timeout: DefaultTimeout, Rows: DefaultRows, Bytes: DefaultBytes, Value: DefaultValue, SQLBytes: DefaultSQLBytes, Concurrency: DefaultConcurrency}
	if diff := cmp.Diff(want, Limits{}.withDefaults()); diff != "" {
		t.Errorf("defaults (-want +got)\n%s", diff)
	}
	most := Limits{Timeout: MaxTimeout, Rows: MaxRows, Bytes: MaxBytes, Value: MaxBytes, SQLBytes: MaxSQLBytes, Concurrency: MaxConcurrency}
	huge := Limits{Timeout: 1 << 60, Rows: 1 << 40, Bytes: 1 << 40, Value: 1 << 40, SQLBytes: 1 << 40, Concurrency: 1 << 40}
	if diff := cmp.Diff(most, huge.withDefaults()); diff != "" {
		t.Errorf("ceilings (-want +got)\n%s", diff)
	}
}
