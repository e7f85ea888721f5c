package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/builtin"
	"hob/internal/fakeweb"
)

// set is a hob.SettingReader of one workspace.
type set map[string]string

func (s set) read(_ context.Context, ws hob.WorkspaceID, key string) (string, error) {
	if ws != hob.DefaultWorkspace {
		return "", errors.New("another workspace")
	}
	return s[key], nil
}

// searcher returns web_search at a fake Exa that takes the operator's key.
func searcher(t *testing.T, settings set, config string) (hob.ToolRunner, *fakeweb.Exa) {
	t.Helper()
	exa := fakeweb.NewExa("exa-key-of-the-operator")
	srv := httptest.NewServer(exa)
	t.Cleanup(srv.Close)
	d := builtin.Deps{Exa: builtin.Service{Key: "exa-key-of-the-operator", BaseURL: srv.URL}, Setting: settings.read}
	return one(t, newSet(t, d), assign("web_search", config)), exa
}

// found is a result of web_search.
type found struct {
	Title, URL    string
	PublishedDate *string
	Highlights    []string
	Text          string
}

func foundIn(t *testing.T, res hob.Result) []found {
	t.Helper()
	var list []found
	if err := json.Unmarshal([]byte(res.Text), &list); err != nil {
		t.Fatalf("the result is no list: %v\n%.300s", err, res.Text)
	}
	return list
}

func TestWebSearch_AsksExaAndTellsWhatItFound(t *testing.T) {
	t.Parallel()
	r, exa := searcher(t, nil, "")
	res := call(t, r, `{"query":" agents in Go ","num_results":2,"search_type":"neural","include_domains":["HTTPS://Go.dev/","*.golang.org"],`+
		`"exclude_domains":["spam.example/ads"],"start_date":"2026-01-01","end_date":"2026-02-01T12:00:00Z","category":"research paper"}`)
	want := `[{"title":"agents in Go, part 1","url":"https://go.dev/1","publishedDate":"2026-01-01T00:00:00.000Z","highlights":["page 1 says about agents in Go"]},` +
		`{"title":"agents in Go, part 2","url":"https://*.golang.org/2","publishedDate":null,"highlights":["page 2 says about agents in Go"]}]`
	if diff := cmp.Diff(hob.Result{Text: want, Action: hob.ActionWebSearch}, res); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	asked := exa.Requests()
	if len(asked) != 1 {
		t.Fatalf("%d requests", len(asked))
	}
	body := map[string]any{
		"query": "agents in Go", "numResults": 2.0, "type": "neural", "contents": map[string]any{"highlights": true},
		"includeDomains": []any{"go.dev", "*.golang.org"}, "excludeDomains": []any{"spam.example/ads"},
		"startPublishedDate": "2026-01-01", "endPublishedDate": "2026-02-01T12:00:00Z", "category": "research paper",
	}
	if diff := cmp.Diff(body, asked[0].Body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestWebSearch_ContentModesAndClamps(t *testing.T) {
	t.Parallel()
	r, exa := searcher(t, nil, "")
	for args, want := range map[string]string{
		`{"query":"q"}`:                               `map[contents:map[highlights:true] numResults:5 query:q type:auto]`,
		`{"query":"q","num_results":0}`:               `map[contents:map[highlights:true] numResults:1 query:q type:auto]`,
		`{"query":"q","num_results":-7}`:              `map[contents:map[highlights:true] numResults:1 query:q type:auto]`,
		`{"query":"q","num_results":99}`:              `map[contents:map[highlights:true] numResults:10 query:q type:auto]`,
		`{"query":"q","content_mode":"compact_text"}`: `map[contents:map[text:map[maxCharacters:3000]] numResults:5 query:q type:auto]`,
		`{"query":"q","content_mode":"full_text"}`:    `map[contents:map[text:true] numResults:5 query:q type:auto]`,
		`{"query":"q","search_type":"keyword"}`:       `map[contents:map[highlights:true] numResults:5 query:q type:keyword]`,
	} {
		before := len(exa.Requests())
		res := call(t, r, args)
		asked := exa.Requests()[before:]
		if len(asked) != 1 || fmt.Sprint(asked[0].Body) != want {
			t.Errorf("%s: asked %v", args, asked)
		}
		for _, f := range foundIn(t, res) {
			if text := strings.Contains(args, "_text"); text != (f.Text != "") || text != (len(f.Highlights) == 0) || f.Highlights == nil {
				t.Errorf("%s: %d characters of text, highlights %q", args, len(f.Text), f.Highlights)
			}
			if strings.Contains(args, "compact") && utf8.RuneCountInString(f.Text) > 3000 {
				t.Errorf("%s: %d characters", args, utf8.RuneCountInString(f.Text))
			}
		}
	}
}

func TestWebSearch_RefusesBadArgumentsBeforeItAsks(t *testing.T) {
	t.Parallel()
	r, exa := searcher(t, nil, "")
	for args, want := range map[string]string{
		`{}`:             "query is required",
		`{"query":"  "}`: "query is required",
		`{"query":"` + strings.Repeat("ü", 2001) + `"}`:                                            "query must have at most 2000 characters",
		`{"query":"q","search_type":"fast"}`:                                                       `search_type must be one of auto, neural, keyword, deep, deep-reasoning, not \"fast\"`,
		`{"query":"q","content_mode":"all"}`:                                                       `content_mode must be one of highlights, compact_text, full_text, not \"all\"`,
		`{"query":"q","category":"pdf"}`:                                                           `category must be one of company, news, research paper, tweet, github, wikipedia, personal site, not \"pdf\"`,
		`{"query":"q","include_domains":["not a domain"]}`:                                         `include_domains has \"not a domain\", which is no domain; write it like example.com`,
		`{"query":"q","exclude_domains":["localhost"]}`:                                            `exclude_domains has \"localhost\", which is no domain; write it like example.com`,
		`{"query":"q","include_domains":[` + strings.Repeat(`"a.example",`, 100) + `"b.example"]}`: "include_domains must have at most 100 domains",
		`{"query":"q","include_domains":"a.example"}`:                                              "include_domains must be a list",
		`{"query":"q","start_date":"last week"}`:                                                   `start_date must be an ISO 8601 date like 2026-01-31 or 2026-01-31T12:00:00Z, not \"last week\"`,
		`{"query":"q","end_date":"2026-02-30"}`:                                                    `end_date must be an ISO 8601 date`,
		`{"query":"q","start_date":"2026-03-01","end_date":"2026-02-01"}`:                          "start_date 2026-03-01 is after end_date 2026-02-01",
		`{"query":"q","num_results":"many"}`:                                                       "num_results must be",
	} {
		res := call(t, r, args)
		if !res.IsError || !res.Free || !strings.HasPrefix(res.Text, `{"error":"`) || !strings.Contains(res.Text, want) {
			t.Errorf("%.80s: %+v, want %q", args, res, want)
		}
	}
	if n := len(exa.Requests()); n != 0 {
		t.Errorf("Exa was asked %d times", n)
	}
}

func TestWebSearch_CountsAsWhatExaWasAskedFor(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"auto": hob.ActionWebSearch, "neural": hob.ActionWebSearch, "keyword": hob.ActionWebSearch,
		"deep": hob.ActionWebSearchDeep, "deep-reasoning": hob.ActionWebSearchDeepReasoning,
	} {
		r, _ := searcher(t, nil, `{"search_type":"`+kind+`"}`)
		args, err := hob.Overlay(json.RawMessage(`{"query":"q"}`), r.Spec().Pinned)
		if err != nil {
			t.Fatal(err)
		}
		if res := call(t, r, string(args)); res.Action != want || res.Free || res.IsError {
			t.Errorf("%s: %+v", kind, res)
		}
	}
}

// A search that the platform is to blame for is free; one that Exa says is wrong is not.
func TestWebSearch_FaultsAreToldAndSomeAreFree(t *testing.T) {
	t.Parallel()
	after := func(text string) http.Header { return http.Header{"Retry-After": {text}} }
	limited := func(h http.Header) fakeweb.Reply {
		return fakeweb.Reply{Status: 429, Header: h, Body: `{"error":"slow down"}`}
	}
	for name, tt := range map[string]struct {
		replies []fakeweb.Reply
		text    string
		free    bool
		asked   int
	}{
		"wrong":         {[]fakeweb.Reply{{Status: 400, Body: `{"error":"bad query","tag":"INVALID"}`}}, `{"error":"Exa answered with status 400: bad query"}`, false, 1},
		"no credits":    {[]fakeweb.Reply{{Status: 402}}, `{"error":"Exa answered with status 402: Payment Required"}`, false, 1},
		"down":          {[]fakeweb.Reply{{Status: 503, Body: "upstream"}}, `{"error":"Exa answered with status 503: upstream"}`, true, 1},
		"redirected":    {[]fakeweb.Reply{{Status: 302, Header: http.Header{"Location": {"http://127.0.0.1/"}}}}, `{"error":"Exa answered with status 302: Found"}`, true, 1},
		"null":          {[]fakeweb.Reply{{Body: "null"}}, `{"error":"Exa answered with something that is no list of results"}`, true, 1},
		"no success":    {[]fakeweb.Reply{{Body: `{"success":false}`}}, `{"error":"Exa answered with something that is no list of results"}`, true, 1},
		"null results":  {[]fakeweb.Reply{{Body: `{"results":null}`}}, `{"error":"Exa answered with something that is no list of results"}`, true, 1},
		"no list":       {[]fakeweb.Reply{{Body: `{"results":{"url":"x"}}`}}, `{"error":"Exa answered with something that is no list of results"}`, true, 1},
		"not JSON":      {[]fakeweb.Reply{{Body: "<html>"}}, `{"error":"Exa answered with something that is no list of results"}`, true, 1},
		"limited":       {[]fakeweb.Reply{limited(nil)}, `{"error":"Exa rate limit exceeded; try again later"}`, true, 1},
		"limited long":  {[]fakeweb.Reply{limited(after("16"))}, `{"error":"Exa rate limit exceeded; try again later"}`, true, 1},
		"limited date":  {[]fakeweb.Reply{limited(after(moment.Add(time.Hour).Format(http.TimeFormat)))}, `{"error":"Exa rate limit exceeded; try again later"}`, true, 1},
		"limited twice": {[]fakeweb.Reply{limited(after("0")), limited(after("0"))}, `{"error":"Exa rate limit exceeded; try again later"}`, true, 2},
		"limited once":  {[]fakeweb.Reply{limited(after("0.01")), {Body: `{"results":[]}`}}, `[]`, false, 2},
		"limited past":  {[]fakeweb.Reply{limited(after(moment.Add(-time.Hour).Format(http.TimeFormat))), {Body: `{"results":[]}`}}, `[]`, false, 2},
	} {
		r, exa := searcher(t, nil, "")
		exa.Next(tt.replies...)
		res := call(t, r, `{"query":"q"}`)
		want := hob.Result{Text: tt.text, IsError: tt.text != "[]", Free: tt.free, Action: hob.ActionWebSearch}
		if diff := cmp.Diff(want, res); diff != "" || len(exa.Requests()) != tt.asked {
			t.Errorf("%s: asked %d times (-want +got):\n%s", name, len(exa.Requests()), diff)
		}
	}
}

func TestWebSearch_TheWorkspacesKeyComesFirstAndIsNeverShown(t *testing.T) {
	t.Parallel()
	r, exa := searcher(t, set{"EXA_API_KEY": "exa-key-of-the-workspace"}, "")
	res := call(t, r, `{"query":"q"}`)
	if got := exa.Requests()[0].Header.Get("X-Api-Key"); got != "exa-key-of-the-workspace" {
		t.Errorf("asked with %q", got)
	}
	if want := `{"error":"Exa answered with status 401: x-api-key header is invalid: ` + hob.Mask + `"}`; res.Text != want || res.Free {
		t.Errorf("a wrong key: %+v", res)
	}
	s := newSet(t, builtin.Deps{})
	none := one(t, s, assign("web_search", ""))
	missing := "Exa API key not configured. Set it in Settings > Tools."
	if res := call(t, none, `{"query":"q"}`); res.Text != `{"error":"`+missing+`"}` || !res.IsError || !res.Free {
		t.Errorf("no key: %+v", res)
	}
	if got := s.Unavailable(t.Context(), hob.DefaultWorkspace, hob.Tool{Name: "web_search"}); !strings.HasPrefix(got, missing) || !strings.Contains(got, "PUT /api/settings/EXA_API_KEY") {
		t.Errorf("no key: unavailable because %q", got)
	}
	keyed := newSet(t, builtin.Deps{Exa: builtin.Service{Key: "k"}})
	if got := keyed.Unavailable(t.Context(), hob.DefaultWorkspace, hob.Tool{Name: "web_search"}); got != "" {
		t.Errorf("with a key: unavailable because %q", got)
	}
}

func TestWebSearch_OwnLimitPerWorkspace(t *testing.T) {
	t.Parallel()
	r, exa := searcher(t, set{"EXA_RATE_LIMIT_PER_MINUTE": "2"}, "")
	for range 2 {
		if res := call(t, r, `{"query":"q"}`); res.IsError {
			t.Fatalf("within the limit: %+v", res)
		}
	}
	res := call(t, r, `{"query":"q"}`)
	if res.Text != `{"error":"Exa rate limit of this workspace (2 requests a minute) reached; try again in a minute"}` || !res.Free || len(exa.Requests()) != 2 {
		t.Errorf("beyond the limit: %+v, %d requests", res, len(exa.Requests()))
	}
}

func TestWebSearch_ResultsAreCutAndStayJSON(t *testing.T) {
	t.Parallel()
	page := func(i int, text string) string {
		return string(must(json.Marshal(map[string]any{"title": strings.Repeat("T", 5000), "url": fmt.Sprintf("https://example.com/%d", i), "text": text, "highlights": []string{text, text}})))
	}
	var pages []string
	for i := range 10 {
		pages = append(pages, page(i, strings.Repeat("<ü\"\\\n", 4000)))
	}
	for mode, most := range map[string]int{"highlights": 20_000, "compact_text": 20_000, "full_text": 50_000} {
		r, exa := searcher(t, nil, "")
		exa.Next(fakeweb.Reply{Body: `{"results":[` + strings.Join(pages, ",") + `]}`})
		res := call(t, r, `{"query":"q","num_results":10,"content_mode":"`+mode+`"}`)
		var cut struct {
			Results   []found
			Truncated bool
		}
		if err := json.Unmarshal([]byte(res.Text), &cut); err != nil || !cut.Truncated || len(cut.Results) != 10 {
			t.Errorf("%s: %v, truncated %t, %d results", mode, err, cut.Truncated, len(cut.Results))
		}
		if n := utf8.RuneCountInString(res.Text); n > most || n < most*9/10 {
			t.Errorf("%s: %d characters", mode, n)
		}
	}
	r, exa := searcher(t, set{"DEFAULT_MAX_RESULT_CHARS": "1000"}, "")
	exa.Next(fakeweb.Reply{Body: `{"results":[` + strings.Join(pages, ",") + `]}`})
	if res := call(t, r, `{"query":"q"}`); utf8.RuneCountInString(res.Text) > 1000 || !json.Valid([]byte(res.Text)) || !strings.Contains(res.Text, "https://example.com/0") {
		t.Errorf("with a low cap of all results: %s", res.Text)
	}
	short, exa := searcher(t, nil, `{"max_chars":2000}`)
	exa.Next(fakeweb.Reply{Body: `{"results":[` + strings.Join(pages, ",") + `]}`})
	if res := call(t, short, `{"query":"q"}`); utf8.RuneCountInString(res.Text) > 2000 || !json.Valid([]byte(res.Text)) {
		t.Errorf("with max_chars: %d characters", utf8.RuneCountInString(res.Text))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestWebSearch_AnExaThatHangsOrIsAwayIsFree(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	s := newSet(t, builtin.Deps{Exa: builtin.Service{Key: "k", BaseURL: closed.URL}})
	res := call(t, one(t, s, assign("web_search", "")), `{"query":"q"}`)
	if !res.IsError || !res.Free || res.Text != `{"error":"Exa could not be reached; the server's log says why"}` || !strings.Contains(res.Note, "connection refused") {
		t.Errorf("away: %+v", res)
	}
	arrived := make(chan struct{}, 1)
	s = newSet(t, builtin.Deps{Exa: builtin.Service{Key: "k", BaseURL: hang(t, arrived).URL}})
	r := one(t, s, assign("web_search", ""))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if _, err := r.Call(ctx, callOf(r, `{"query":"q"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
}
