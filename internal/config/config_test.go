package config_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hob"
	"hob/internal/config"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// load runs config.Load in a fresh data folder with the given hob.toml, flags and variables.
func load(t *testing.T, file string, args []string, env map[string]string) (config.Config, []string, error) {
	t.Helper()
	dir := t.TempDir()
	if file != "" {
		if err := os.WriteFile(filepath.Join(dir, config.FileName), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = append([]string{"--data", dir}, args...)
	return config.Load(flag.NewFlagSet("test", flag.ContinueOnError), args, func(k string) string { return env[k] })
}

func mustLoad(t *testing.T, file string, args []string, env map[string]string) config.Config {
	t.Helper()
	c, _, err := load(t, file, args, env)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return c
}

func TestLoad_Defaults(t *testing.T) {
	t.Parallel()
	c, _, err := config.Load(flag.NewFlagSet("test", flag.ContinueOnError), nil, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	type view struct {
		Addr, Data, Database, Project string
		Drain                         time.Duration
		MaxRuns                       int
		Rate                          bool
		Level                         slog.Level
		Format                        config.LogFormat
	}
	got := view{c.Addr, c.Data, c.Database, c.ProjectDatabase, c.Drain, c.MaxRuns, c.RateLimit, c.LogLevel, c.LogFormat}
	want := view{"127.0.0.1:8787", "./hob-data", "", "", 30 * time.Second, 2048, true, slog.LevelInfo, config.LogAuto}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	for _, s := range c.Dump() {
		if s.Source != config.FromDefault {
			t.Errorf("%s comes from %s, want the default", s.Name, s.Source)
		}
	}
}

func TestLoad_FlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	t.Parallel()
	const file = `addr = "127.0.0.1:1"`
	env := map[string]string{"HOB_ADDR": "127.0.0.1:2"}
	flags := []string{"--addr", "127.0.0.1:3"}
	for _, tc := range []struct {
		name, file string
		args       []string
		env        map[string]string
		want       string
	}{
		{"default", "", nil, nil, "127.0.0.1:8787"},
		{"file", file, nil, nil, "127.0.0.1:1"},
		{"environment", file, nil, env, "127.0.0.1:2"},
		{"flag", file, flags, env, "127.0.0.1:3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := mustLoad(t, tc.file, tc.args, tc.env)
			if c.Addr != tc.want {
				t.Errorf("addr = %s, want %s", c.Addr, tc.want)
			}
			if got := string(c.Dump()[0].Source); got != tc.name {
				t.Errorf("source = %s, want %s", got, tc.name)
			}
		})
	}
}

func TestLoad_EmptyFlagUndoesTheEnvironment(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "", []string{"--database", ""}, map[string]string{"HOB_DATABASE_URL": "postgres://h/d"})
	if c.Database != "" {
		t.Errorf("database = %q, want none", c.Database)
	}
}

func TestLoad_WordsAndFlagsMayBeMixed(t *testing.T) {
	t.Parallel()
	_, rest, err := load(t, "", []string{"demo", "--log", "warn", "hello there", "--", "--addr"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"demo", "hello there", "--addr"}, rest); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
}

func TestLoad_EveryKeyOfTheFile(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, `
addr = "127.0.0.1:1"
database = "postgres://u:p@h/d"
project-database = "postgresql://h/p"
allow_powerful_role = true
public_url = "https://hob.example"
storage = "s3://files/eu?endpoint=https://s3.example&region=eu"
storage_access_key = "i"
storage_secret_key = "t"
sandbox = "weak"
egress_allow = ["10.0.0.0/8:80", "box.example:9000", "[fd00::/8]:443"]
log = "debug,json"
drain = "5s"
max_runs = 300
cors_origins = "https://a.example, http://localhost:3000"
rate_limit = false
service_key = "k"
jwt_secret = "0123456789abcdef0123456789abcdef"
seal_key = "s"
key = "c"
openai_api_key = "o"
openai_base_url = "http://127.0.0.1:1/v1/"
anthropic_api_key = "a"
anthropic_base_url = "http://127.0.0.1:2"
gemini_api_key = "g"
gemini_base_url = "http://127.0.0.1:3"
openrouter_api_key = "r"
openrouter_base_url = "http://127.0.0.1:4/v1"
ollama_host = "box"
exa_api_key = "e"
exa_base_url = "http://127.0.0.1:5"
firecrawl_api_key = "f"
firecrawl_api_base = "http://127.0.0.1:6"
code_sandbox_url = "http://127.0.0.1:7"
code_sandbox_api_key = "x"
`, nil, nil)
	for _, s := range c.Dump() {
		if s.Name != "--data" && s.Source != config.FromFile {
			t.Errorf("%s comes from %s: the file has no key for it, or it was not read", s.Name, s.Source)
		}
	}
	got := fmt.Sprintln(c.EgressAllow, c.CORSOrigins, c.RateLimit, c.Drain, c.MaxRuns, c.LogLevel, c.LogFormat, c.OllamaHost,
		c.OpenAI.BaseURL, c.Firecrawl.BaseURL, c.CodeSandbox.BaseURL)
	want := "10.0.0.0/8:80,box.example:9000,[fd00::/8]:443 [https://a.example http://localhost:3000] false 5s 300 DEBUG json " +
		"http://box:11434 http://127.0.0.1:1/v1 http://127.0.0.1:6 http://127.0.0.1:7\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	keys := []hob.Secret{c.ServiceKey, c.SealKey, c.Key, c.OpenAI.Key, c.Anthropic.Key, c.Gemini.Key, c.OpenRouter.Key, c.Exa.Key, c.Firecrawl.Key, c.CodeSandbox.Key}
	var plain strings.Builder
	for _, k := range keys {
		plain.WriteString(string(k))
	}
	if plain.String() != "kscoagrefx" {
		t.Errorf("keys = %s, want kscoagrefx: a key went to the wrong place", plain.String())
	}
}

func TestLoad_MistakesNameTheOptionAndShowAValidValue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, file string
		args       []string
		env        map[string]string
		want       []string // parts of the message
	}{
		{"addr without port", "", []string{"--addr", "localhost"}, nil, []string{"--addr must be host:port", "127.0.0.1:8787"}},
		{"addr with a scheme", "", nil, map[string]string{"HOB_ADDR": "http://localhost:1"}, []string{"HOB_ADDR must be host:port"}},
		{"port too high", "", []string{"--addr", ":65536"}, nil, []string{"port from 0 to 65535"}},
		{"database of another kind", "", []string{"--database", "mysql://h/d"}, nil, []string{"--database must be a URL that begins with postgres://"}},
		{"database without name", "", []string{"--database", "postgres://h"}, nil, []string{"must name the database"}},
		{"drain without unit", "drain = 30", nil, nil, []string{"drain in ", "duration with its unit", "30s"}},
		{"drain too long", "", []string{"--drain", "61m"}, nil, []string{"--drain must be from 0 to 1h0m0s"}},
		{"drain below zero", "", []string{"--drain", "-1s"}, nil, []string{"from 0 to"}},
		{"no runs", "", []string{"--max-runs", "0"}, nil, []string{"--max-runs must be a whole number from 1 to 100000", "2048"}},
		{"more runs than may be", "max_runs = 100001", nil, nil, []string{"max_runs in ", "from 1 to 100000"}},
		{"runs in words", "", nil, map[string]string{"HOB_MAX_RUNS": "many"}, []string{"HOB_MAX_RUNS must be a whole number"}},
		{"log level", "", []string{"--log", "loud"}, nil, []string{"debug, info, warn or error"}},
		{"log form", "", []string{"--log", "info,xml"}, nil, []string{",text or ,json"}},
		{"rate limit", "", nil, map[string]string{"HOB_RATE_LIMIT": "50"}, []string{"HOB_RATE_LIMIT must be on or off"}},
		{"origin with a path", "", nil, map[string]string{"HOB_CORS_ORIGINS": "https://a.example/"}, []string{"HOB_CORS_ORIGINS", "without a path"}},
		{"origin star", "", nil, map[string]string{"HOB_CORS_ORIGINS": "*"}, []string{"origins like https://app.example.com"}},
		{"list too long", "", nil, map[string]string{"HOB_CORS_ORIGINS": strings.Repeat("http://a,", config.MaxListItems+1)}, []string{"at most 256 items"}},
		{"key with a blank", "", nil, map[string]string{"OPENAI_API_KEY": "sk 1"}, []string{"OPENAI_API_KEY must be printable ASCII"}},
		{"key too long", "", nil, map[string]string{"OPENAI_API_KEY": strings.Repeat("k", config.MaxSecretSize+1)}, []string{"at most 8192"}},
		{"provider address", "", nil, map[string]string{"OPENAI_BASE_URL": "localhost:8000/v1"}, []string{"OPENAI_BASE_URL must be an address that begins with http"}},
		{"provider address with a key", "", nil, map[string]string{"EXA_BASE_URL": "https://k:v@h"}, []string{"must not hold a user"}},
		{"provider address with a query", "", nil, map[string]string{"GEMINI_BASE_URL": "https://h/?key=1"}, []string{"must not have a query"}},
		{"ollama", "", nil, map[string]string{"OLLAMA_HOST": "ftp://h"}, []string{"OLLAMA_HOST must be an address"}},
		{"unknown flag", "", []string{"--adr", "x"}, nil, []string{"no flag --adr"}},
		{"unknown key", "adr = 'x'", nil, nil, []string{"hob.toml: adr: no option has this key"}},
		{"table", "[openai]\nkey = 'x'", nil, nil, []string{"hob.toml: openai: no option has this key"}},
		{"two spellings", "cors-origins = ''\ncors_origins = ''", nil, nil, []string{"stands twice"}},
		{"key twice", "addr = ':1'\naddr = ':2'", nil, nil, []string{"hob.toml", "addr"}},
		{"list of numbers", "cors_origins = [1]", nil, nil, []string{"items of a list must be text"}},
		{"date", "drain = 2020-01-01", nil, nil, []string{"must be text, a number"}},
		{"data in the file", "data = '/x'", nil, nil, []string{"data: the file lies in the data folder"}},
		{"no TOML", "addr", nil, nil, []string{"hob.toml"}},
		{"file too large", "# " + strings.Repeat("x", config.MaxFileSize), nil, nil, []string{"larger than"}},
		{"empty data folder", "", []string{"--data", " "}, nil, []string{"--data must be the path of a folder"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := load(t, tc.file, tc.args, tc.env)
			if hob.KindOf(err) != hob.Invalid {
				t.Fatalf("error = %v (kind %s), want an invalid_request", err, hob.KindOf(err))
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestLoad_TellsAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, "", []string{"--addr", "x", "--drain", "x"}, map[string]string{"HOB_RATE_LIMIT": "x"})
	for _, option := range []string{"--addr", "--drain", "HOB_RATE_LIMIT"} {
		if err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("error %v does not name %s", err, option)
		}
	}
}

func TestLoad_ErrorsNeverRepeatASecret(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, "", nil, map[string]string{"HOB_JWT_SECRET": "hunter2é", "OPENAI_API_KEY": "hunter2 "})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error = %v: it should be there and not show the value", err)
	}
}

func TestLoad_HelpIsAskedFor(t *testing.T) {
	t.Parallel()
	if _, _, err := load(t, "", []string{"--help"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("error = %v, want flag.ErrHelp", err)
	}
}

func TestLoad_SecretsFromFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("sk-1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "", nil, map[string]string{"OPENAI_API_KEY_FILE": path})
	if c.OpenAI.Key != "sk-1" {
		t.Error("the key is not the file's first line")
	}
	for name, env := range map[string]map[string]string{
		"both set":   {"HOB_KEY": "a", "HOB_KEY_FILE": path},
		"absent":     {"HOB_KEY_FILE": path + "-absent"},
		"is empty":   {"HOB_KEY_FILE": empty},
		"no such":    {"HOB_SERVICE_KEY_FILE": path + "/x"},
		"not secret": {"HOB_ADDR_FILE": path, "HOB_LOG": "x"}, // HOB_ADDR_FILE means nothing; the error is HOB_LOG's
	} {
		if _, _, err := load(t, "", nil, env); hob.KindOf(err) != hob.Invalid {
			t.Errorf("%s: error = %v, want an invalid_request", name, err)
		}
	}
}

func TestDump_HidesSecrets(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "", nil, map[string]string{
		"HOB_SERVICE_KEY": "hunter2", "OPENAI_API_KEY": "hunter2", "HOB_SEAL_KEY": "hunter2", "HOB_KEY": "hunter2",
		"HOB_DATABASE_URL":         "postgres://u:hunter2@h/d?sslmode=disable",
		"HOB_PROJECT_DATABASE_URL": "postgres://u@h/d?password=hunter2",
	})
	dump := fmt.Sprintf("%+v %+v %#v", c.Dump(), c, c.OpenAI)
	dump = strings.NewReplacer(c.Database, "", c.ProjectDatabase, "").Replace(dump) // the fields themselves are for opening
	if strings.Contains(dump, "hunter2") {
		t.Errorf("a secret shows: %s", dump)
	}
	var found int
	for _, s := range c.Dump() {
		if s.Value == hob.Mask {
			found++
		}
		if s.Name == "--database" && s.Value != "postgres://u:xxxxx@h/d?sslmode=disable" {
			t.Errorf("database reads %s", s.Value)
		}
	}
	if found != 4 {
		t.Errorf("%d secrets are masked, want 4", found)
	}
}

func TestOllamaHost_ReadsAsItsOwnTools(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"box":                    "http://box:11434",
		"0.0.0.0":                "http://127.0.0.1:11434",
		"0.0.0.0:8080":           "http://127.0.0.1:8080",
		"http://box:1/":          "http://box:1",
		"https://box":            "https://box:443",
		"[::1]:11434":            "http://[::1]:11434",
		"http://[::]:9":          "http://127.0.0.1:9",
		"https://box/base/path/": "https://box:443/base/path",
	} {
		if c := mustLoad(t, "", nil, map[string]string{"OLLAMA_HOST": in}); c.OllamaHost != want {
			t.Errorf("OLLAMA_HOST=%s reads %s, want %s", in, c.OllamaHost, want)
		}
	}
}

func TestExposed_NeedsTheOperatorsKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		addr, key string
		ok        bool
	}{
		{"127.0.0.1:1", "", true},
		{"127.0.0.1:1", "k", true},
		{"localhost:1", "", true},
		{"[::1]:1", "", true},
		{"[::ffff:127.0.0.1]:1", "", true},
		{":1", "", false},
		{"0.0.0.0:1", "", false},
		{"10.0.0.1:1", "", false},
		{"example.com:1", "", false},
		{"0.0.0.0:1", strings.Repeat("k", config.MinServiceKey-1), false},
		{"0.0.0.0:1", strings.Repeat("k", config.MinServiceKey), true},
	} {
		c := mustLoad(t, "", []string{"--addr", tc.addr}, map[string]string{"HOB_SERVICE_KEY": tc.key})
		if err := c.CheckExposed(); (err == nil) != tc.ok {
			t.Errorf("%s with a key of %d characters: %v, want ok %t", tc.addr, len(tc.key), err, tc.ok)
		}
	}
}

func TestExposed_NeedsALongTokenSecret(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		addr string
		size int
		ok   bool
	}{
		{"127.0.0.1:1", 1, true}, {":1", config.MinJWTSecret - 1, false}, {":1", config.MinJWTSecret, true},
	} {
		c := mustLoad(t, "", []string{"--addr", tc.addr}, map[string]string{
			"HOB_SERVICE_KEY": strings.Repeat("k", config.MinServiceKey), "HOB_JWT_SECRET": strings.Repeat("s", tc.size),
		})
		if err := c.CheckExposed(); (err == nil) != tc.ok {
			t.Errorf("%s with a secret of %d characters: %v, want ok %t", tc.addr, tc.size, err, tc.ok)
		}
	}
}

func TestURL_ReachesAServerOnAllAddresses(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		":1": "http://127.0.0.1:1", "0.0.0.0:2": "http://127.0.0.1:2", "[::]:3": "http://127.0.0.1:3",
		"[::1]:4": "http://[::1]:4", "box.example:5": "http://box.example:5",
	} {
		if got := mustLoad(t, "", []string{"--addr", addr}, nil).URL(); got != want {
			t.Errorf("%s is reached at %s, want %s", addr, got, want)
		}
	}
}

func TestMarkdown_IsTheDocumentation(t *testing.T) {
	t.Parallel()
	const path = "../../docs/configuration.md"
	if *update {
		if err := os.WriteFile(path, []byte(config.Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Markdown(), string(got)); diff != "" {
		t.Errorf("%s differs from the option table; run make golden (-want +got):\n%s", path, diff)
	}
}

func TestUsage_ListsEveryOption(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := config.WriteUsage(&b); err != nil {
		t.Fatal(err)
	}
	for _, s := range mustLoad(t, "", nil, nil).Dump() {
		if !strings.Contains(b.String(), s.Name) {
			t.Errorf("the usage does not name %s", s.Name)
		}
	}
	b.Reset()
	if err := config.WriteUsage(&b, "--addr", "HOB_KEY"); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "--addr, HOB_ADDR") || !strings.Contains(got, "HOB_KEY") || strings.Contains(got, "--drain") {
		t.Errorf("the usage of two options is:\n%s", got)
	}
}
