package egress_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"hob/internal/egress"
)

func zip(t *testing.T, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// noise is text that compresses badly but is the same in every run.
func noise(n int) []byte {
	b, x := make([]byte, n), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = 'a' + byte(x>>24)%26
	}
	return b
}

func TestDo_BodyCapsHold(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	text := []byte(strings.Repeat("grüße ", 1000))
	bomb := zip(t, make([]byte, 8*mib))
	mixed := append(noise(mib/50), make([]byte, mib)...)
	tests := []struct {
		name    string
		body    []byte
		coding  string
		max     int64
		chunked bool
		want    []byte
		cut     bool
		kind    egress.Kind
	}{
		{name: "empty"},
		{name: "plain", body: text, want: text},
		{name: "chunked", body: text, chunked: true, want: text},
		{name: "exactly the cap", body: text, max: int64(len(text)), want: text},
		{name: "exactly the cap chunked", body: text, max: int64(len(text)), chunked: true, want: text},
		{name: "one byte over", body: text, max: int64(len(text)) - 1, want: text[:len(text)-1], cut: true},
		{name: "default cap", body: noise(2*mib + 1), want: noise(2 * mib), cut: true},
		{name: "default cap chunked", body: noise(3 * mib), chunked: true, want: noise(3 * mib)[:2*mib], cut: true},
		{name: "gzip", body: zip(t, text), coding: "gzip", want: text},
		{name: "gzip in capitals", body: zip(t, text), coding: " GZIP", want: text},
		{name: "x-gzip", body: zip(t, text), coding: "x-gzip", want: text},
		{name: "gzip of nothing", body: zip(t, nil), coding: "gzip", want: nil},
		{name: "gzip announced, nothing sent", coding: "gzip"},
		{name: "gzip in two members", body: append(zip(t, text), zip(t, text)...), coding: "gzip", want: append(append([]byte(nil), text...), text...)},
		{name: "gzip over the cap", body: zip(t, noise(3*mib)), coding: "gzip", want: noise(3 * mib)[:2*mib], cut: true},
		{name: "gzip of a text within the free length", body: zip(t, make([]byte, mib)), coding: "gzip", want: make([]byte, mib)},
		{name: "gzip with a fair ratio", body: zip(t, mixed), coding: "gzip", want: mixed},
		{name: "gzip bomb", body: bomb, coding: "gzip", max: 32 * mib, kind: egress.TooLarge},
		{name: "gzip bomb under the default cap", body: bomb, coding: "gzip", kind: egress.TooLarge},
		{name: "identity", body: text, coding: "identity", want: text},
		{name: "not gzip", body: text, coding: "gzip", kind: egress.BadResponse},
		{name: "cut gzip", body: zip(t, noise(10_000))[:3000], coding: "gzip", kind: egress.BadResponse},
		{name: "gzip with a tail", body: append(zip(t, text), "tail, not gzip"...), coding: "gzip", kind: egress.BadResponse},
		{name: "unasked coding", body: text, coding: "br", kind: egress.BadResponse},
		{name: "two codings", body: zip(t, zip(t, text)), coding: "gzip, gzip", kind: egress.BadResponse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			to := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != "gzip" {
					t.Errorf("Accept-Encoding %q", got)
				}
				if tt.coding != "" {
					w.Header().Set("Content-Encoding", tt.coding)
				}
				if tt.chunked {
					_ = http.NewResponseController(w).Flush()
				}
				_, _ = w.Write(tt.body)
			})
			w := newWorld(t, egress.Config{}, sites(), to)
			for range 2 { // the second time with a used decompressor
				res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", MaxBody: tt.max})
				if kindOf(t, err) != tt.kind {
					t.Fatalf("Do: %v (%v), want kind %q", err, kindOf(t, err), tt.kind)
				}
				if tt.kind != "" {
					return
				}
				if !bytes.Equal(res.Body, tt.want) || res.Truncated != tt.cut {
					t.Fatalf("%d bytes, truncated %t; want %d bytes, truncated %t", len(res.Body), res.Truncated, len(tt.want), tt.cut)
				}
				if strings.Contains(strings.ToLower(tt.coding), "gzip") && len(tt.body) > 0 && res.Header.Get("Content-Encoding")+res.Header.Get("Content-Length") != "" {
					t.Errorf("headers still tell of the packed body: %v", res.Header)
				}
			}
		})
	}
}

func TestDo_TruncationKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"two bytes": "äöü", "three": "日本語", "four": "😀😃😄", "mixed": "a日😀ö"} {
		to := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
		w := newWorld(t, egress.Config{}, sites(), to)
		for limit := 1; limit < len(text); limit++ {
			res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", MaxBody: int64(limit)})
			if err != nil {
				t.Fatal(err)
			}
			if !utf8.Valid(res.Body) || !strings.HasPrefix(text, string(res.Body)) || !res.Truncated || limit-len(res.Body) >= utf8.UTFMax {
				t.Errorf("%s cut at %d: %q, truncated %t", name, limit, res.Body, res.Truncated)
			}
		}
	}
	// What is no UTF-8 is cut at the byte.
	to := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ab\xff\x80\x80\x80\x80\x80")) })
	w := newWorld(t, egress.Config{}, sites(), to)
	res, err := w.Do(t.Context(), egress.Request{URL: "http://a.example/", MaxBody: 7})
	if err != nil || len(res.Body) != 7 {
		t.Errorf("binary body: %v %v", res, err)
	}
}

func TestDo_HeadHasNoBody(t *testing.T) {
	t.Parallel()
	to := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "1000")
	})
	w := newWorld(t, egress.Config{}, sites(), to)
	res, err := w.Do(t.Context(), egress.Request{Method: "HEAD", URL: "http://a.example/"})
	if err != nil || len(res.Body) != 0 || res.Header.Get("Content-Length") != "1000" {
		t.Errorf("HEAD: %+v %v", res, err)
	}
}
