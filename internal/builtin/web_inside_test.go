package builtin

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"hob"
	"hob/internal/egress"
)

func TestLimiter_IsASlidingWindowThatWaitsALittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(time.Now)
		ask := func() (waited time.Duration, ok bool) {
			began := time.Now()
			ok, err := l.wait(t.Context(), "w", 2)
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(began), ok
		}
		for i, step := range []struct {
			sleep, waits time.Duration
			ok           bool
		}{
			{0, 0, true}, {30 * time.Second, 0, true}, // at 0 s and 30 s
			{0, 0, false}, // its turn is at 60 s, 30 s away
			{21 * time.Second, 9 * time.Second, true}, // at 51 s, sent at 60 s
			{0, 0, false}, // at 60 s; its turn is at 90 s
			{20 * time.Second, 10 * time.Second, true},
		} {
			time.Sleep(step.sleep)
			if waited, ok := ask(); waited != step.waits || ok != step.ok {
				t.Errorf("step %d: waited %s, %t; want %s, %t", i, waited, ok, step.waits, step.ok)
			}
		}
		if ok, err := l.wait(t.Context(), "another", 2); !ok || err != nil {
			t.Errorf("another workspace: %t, %v", ok, err)
		}
	})
}

func TestLimiter_NeverLetsMoreThroughInAnyMinute(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		l := newLimiter(func() time.Time { return now })
		most := rapid.IntRange(1, 5).Draw(t, "most")
		var sent []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			if delay, ok := l.reserve("w", most); ok {
				if delay > limitWait {
					t.Fatalf("a request waits %s", delay)
				}
				sent = append(sent, now.Add(delay))
			}
		}
		for i := most; i < len(sent); i++ {
			if sent[i].Sub(sent[i-most]) < limitWindow {
				t.Fatalf("%d requests within %s", most+1, sent[i].Sub(sent[i-most]))
			}
		}
		if len(l.asked["w"]) > 2*most {
			t.Fatalf("%d times are kept for a limit of %d", len(l.asked["w"]), most)
		}
	})
}

func TestLimiter_ForgetsIdleWorkspaces(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := newLimiter(func() time.Time { return now })
	for range 3 * limitKeys {
		now = now.Add(time.Second)
		l.reserve(hob.WorkspaceID(hob.NewUUID()), 1)
	}
	if len(l.asked) > limitKeys {
		t.Errorf("%d workspaces are remembered", len(l.asked))
	}
}

func TestLimiter_ACancelledWaitEnds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := newLimiter(func() time.Time { return now })
	l.asked["w"] = []time.Time{now.Add(-limitWindow + limitWait)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.wait(ctx, "w", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestCallCounts_ForgetOnlyOldRuns(t *testing.T) {
	t.Parallel()
	c := newCallCounts()
	take := func(run hob.RunID) bool { return c.take(hob.Call{Run: run, Name: "t", Attempt: 1}, 1) }
	if !take("first") || take("first") || !c.take(hob.Call{Run: "first", Name: "t", Attempt: 2}, 1) {
		t.Error("one call may be made, and tried again")
	}
	for range 3 * maxCounted {
		take(hob.NewRunID())
	}
	if len(c.new)+len(c.old) > maxCounted {
		t.Errorf("%d runs are remembered", len(c.new)+len(c.old))
	}
}

func TestFitPage_IsJSONWithinItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("aü🙂\"\\<\n\x01")), 0, 3000, -1)
		page := []member{
			{"markdown", encode(text.Draw(t, "markdown"))},
			{"links", encode(rapid.SliceOfN(rapid.StringN(0, 50, -1), 0, 100).Draw(t, "links"))},
			{"metadata", encode(map[string]any{"title": text.Draw(t, "title"), "nested": map[string]string{"a": text.Draw(t, "nested")}, "statusCode": 200})},
			{"more", json.RawMessage("null")},
		}
		most := rapid.IntRange(100, 12_000).Draw(t, "most")
		out := fitPage(page, most, false)
		if !json.Valid(out) || utf8.RuneCount(out) > most {
			t.Fatalf("%d characters of %d, valid: %t", utf8.RuneCount(out), most, json.Valid(out))
		}
		var got struct{ Truncated bool }
		_ = json.Unmarshal(out, &got)
		if got.Truncated != (utf8.RuneCount(object(page)) > most) {
			t.Fatalf("truncated: %t", got.Truncated)
		}
	})
}

func TestFitResults_IsJSONWithinItsBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("aü🙂\"\\<\n")), 0, 2000, -1)
		var results []searchResult
		for range rapid.IntRange(0, 10).Draw(t, "n") {
			results = append(results, searchResult{
				Title: text.Draw(t, "title"), URL: "https://example.com/", Text: text.Draw(t, "text"),
				Highlights: rapid.SliceOfN(text, 0, 4).Draw(t, "highlights"),
			})
		}
		most := rapid.IntRange(100, 20_000).Draw(t, "most")
		if out := fitResults(results, most); !json.Valid(out) || utf8.RuneCount(out) > most {
			t.Fatalf("%d characters of %d, valid: %t", utf8.RuneCount(out), most, json.Valid(out))
		}
	})
}

func TestRequestOfAService_EndsInTime(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only once the body is read
		<-r.Context().Done()
	}))
	defer srv.Close()
	s := New(Deps{Egress: egress.New(egress.Config{})})
	_, fault, err := s.ask(t.Context(), hob.Call{}, serviceRequest{
		service: service{name: "Exa", base: srv.URL, operator: true}, path: "/search", body: map[string]string{},
		header: func(http.Header) {}, timeout: 50 * time.Millisecond, limit: s.exaLimit, most: 1,
	})
	if err != nil || fault == nil || fault.Text != `{"error":"Exa did not answer within 50ms"}` || !fault.Free {
		t.Errorf("%+v, %v", fault, err)
	}
}

func TestRequestOfAService_BoundsTheAnswer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range maxServiceBody/1024 + 1 {
			_, _ = w.Write(make([]byte, 1024))
		}
	}))
	defer srv.Close()
	s := New(Deps{Egress: egress.New(egress.Config{})})
	_, fault, err := s.ask(t.Context(), hob.Call{}, serviceRequest{
		service: service{name: "Exa", base: srv.URL, operator: true}, path: "/search", body: map[string]string{},
		header: func(http.Header) {}, timeout: 10 * time.Second, limit: s.exaLimit, most: 1,
	})
	if err != nil || fault == nil || fault.Text != `{"error":"Exa answered with more than 8388608 bytes"}` || !fault.Free {
		t.Errorf("%+v, %v", fault, err)
	}
}

func TestImageType_ReadsTheHeaderAndCountsPixels(t *testing.T) {
	t.Parallel()
	png := func(w, h uint32) []byte {
		b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, w), h)
		return append(b, 8, 2, 0, 0, 0, 0, 0, 0, 0)
	}
	webp := func(chunk string, rest ...byte) []byte {
		b := append([]byte("RIFF\x00\x00\x00\x00WEBP"+chunk+"\x00\x00\x00\x00"), rest...)
		return append(b, make([]byte, 30)...)
	}
	for name, tt := range map[string]struct {
		data []byte
		kind string
	}{
		"webp lossy":     {webp("VP8 ", 0, 0, 0, 0x9d, 0x01, 0x2a, 100, 0, 50, 0), "image/webp"},
		"webp lossless":  {webp("VP8L", 0x2f, 99, 0, 0, 0), "image/webp"},
		"webp extended":  {webp("VP8X", 0, 0, 0, 0, 99, 0, 0, 49, 0, 0), "image/webp"},
		"webp too large": {webp("VP8X", 0, 0, 0, 0, 0xff, 0xff, 0, 0xff, 0xff, 0), ""},
		"webp broken":    {webp("VP8 "), ""},
		"webp unknown":   {webp("VP9 ", 1, 2, 3, 4, 5, 6), ""},
		"webp short":     {[]byte("RIFF\x00\x00\x00\x00WEBPVP8 "), ""},
		"nothing":        {nil, ""},
		"text":           {[]byte("<svg xmlns='http://www.w3.org/2000/svg'/>"), ""},
	} {
		kind, ok := imageType(tt.data)
		if ok != (tt.kind != "") || ok && kind != tt.kind {
			t.Errorf("%s: %q, %t", name, kind, ok)
		}
	}
	if _, ok := imageType(fixCRC(png(7000, 7000))); !ok {
		t.Error("49 million pixels are refused")
	}
	if _, ok := imageType(fixCRC(png(8000, 7000))); ok {
		t.Error("56 million pixels are taken")
	}
}

func TestImagesIn_FindsTheirAddresses(t *testing.T) {
	t.Parallel()
	text := strings.Join([]string{
		"![a](https://a.example/1.png) and ![b \\] c](https://a.example/2.png \"title\")",
		"[![linked](https://a.example/3.png)](https://a.example/page)",
		"![again](https://a.example/1.png) ![paren](https://a.example/x_(1).png) ![data](data:image/png;base64,AAAA) ![rel](/x.png)",
		"![[nested]](<https://a.example/4.png>) [no image](https://a.example/5.png)",
	}, "\n")
	got := strings.Join(imagesIn(text, 10), " ")
	want := "https://a.example/1.png https://a.example/2.png https://a.example/3.png https://a.example/x_(1).png https://a.example/4.png"
	if got != want {
		t.Errorf("found %s", got)
	}
	if got := imagesIn(text, 2); len(got) != 2 {
		t.Errorf("two are wanted: %q", got)
	}
}

// fixCRC writes the checksum of a PNG's header, which is what its reader looks at first.
func fixCRC(png []byte) []byte {
	const from, to = 12, 29 // the chunk's type and data
	return binary.BigEndian.AppendUint32(png[:to:to], crc32.ChecksumIEEE(png[from:to]))
}

func TestPages_AreBoundedInTimeAndNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Deps{Egress: egress.New(egress.Config{})})
		for range maxPages {
			s.pages <- struct{}{}
		}
		began := time.Now()
		_, err := s.htmlPage(t.Context(), &scrapeArgs{Formats: pageFormats}, "<p>text</p>", pageFacts{URL: "https://example.com/"})
		if hob.KindOf(err) != hob.Invalid || err.Error() != "too many pages are being read; try again" || time.Since(began) != pageTimeout {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		<-s.pages
		page, err := s.htmlPage(t.Context(), &scrapeArgs{Formats: pageFormats}, "<p>text</p>", pageFacts{URL: "https://example.com/"})
		if err != nil || len(page) != 4 {
			t.Errorf("with a free place: %d members, %v", len(page), err)
		}
		synctest.Wait()
		if len(s.pages) != maxPages-1 {
			t.Errorf("%d places are taken", len(s.pages))
		}
	})
}

func TestPages_AreMeasuredBeforeTheyAreRead(t *testing.T) {
	t.Parallel()
	many := func(n int, f func(int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(f(i))
		}
		return b.String()
	}
	numbered := func(format string) func(int) string { return func(i int) string { return fmt.Sprintf(format, i) } }
	for name, tt := range map[string]struct{ page, want string }{
		"an article":        {strings.Repeat("<p>Some <b>bold</b> and <a href='/x'>linked</a> text<br>here.</p><ul><li>one<li>two</ul>", 2000), ""},
		"old, unclosed":     {"<table>" + strings.Repeat("<tr><td><font color=red><b>cell", 5000) + "</table>", ""},
		"cards":             {strings.Repeat("<a href=/x><div><h2>Title</h2><p>Text</p></div></a>", 5000), ""},
		"attributes":        {"<p " + many(600, numbered("a%d ")) + ">x", "more than 500 attributes"},
		"many attributes":   {many(30000, numbered("<i a b c d e f=%d>x</i>")), "more than 150000 attributes"},
		"elements":          {strings.Repeat("<i></i>", 60000), "more than 100000 elements"},
		"made anew":         {"<p>" + many(40, numbered("<b a=%d>")) + strings.Repeat("<p>x", 10000), "more than 100000 elements"},
		"made anew by ends": {many(40, numbered("<b a=%d>")) + strings.Repeat("<div>x</div>", 10000), "more than 100000 elements"},
		"formatting":        {"<p>" + many(60, numbered("<b a=%d>")) + "<p>x", "more than 50 formatting elements"},
	} {
		doc := 0
		err := measureHTML(tt.page)
		if err == nil {
			tree, parse := html.Parse(strings.NewReader(tt.page))
			if parse != nil {
				t.Fatalf("%s: %v", name, parse)
			}
			doc = countNodes(tree)
		}
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) || doc > maxNodes {
			t.Errorf("%s: %d nodes, %v", name, doc, err)
		}
	}
	for selector, ok := range map[string]bool{
		"nav": true, ".a > b": true, "a[href^='http://x:y']": true, "[class~=x]": true, "p:not(.x)": true, "a:empty": true,
		"p:nth-last-of-type(2)": false, "li:NTH-child(1)": false, "a ~ b": false, "div:has(p)": false, ":contains(x)": false, "p:last-child": false, "p:only-of-type": false,
	} {
		if err := checkSelectors([]string{selector}); (err == nil) != ok {
			t.Errorf("%s: %v", selector, err)
		}
	}
}

func TestPages_LargeOnesComeOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Deps{Egress: egress.New(egress.Config{})})
		s.largePages <- struct{}{}
		facts := pageFacts{URL: "https://example.com/"}
		large := "<p>" + strings.Repeat("text ", largePage/5+1)
		if _, err := s.htmlPage(t.Context(), &scrapeArgs{Formats: pageFormats}, large, facts); hob.KindOf(err) != hob.Invalid {
			t.Errorf("a large page beside another: %v", err)
		}
		if _, err := s.htmlPage(t.Context(), &scrapeArgs{Formats: pageFormats}, "<p>text</p>", facts); err != nil {
			t.Errorf("a small one beside it: %v", err)
		}
		<-s.largePages
		if _, err := s.htmlPage(t.Context(), &scrapeArgs{Formats: pageFormats}, large, facts); err != nil {
			t.Errorf("a large page alone: %v", err)
		}
		synctest.Wait()
		if len(s.pages)+len(s.largePages) != 0 {
			t.Error("places are taken")
		}
	})
}
