// Package config reads what the operator of a server sets: one table of options, each with its flag, environment
// variable, key in hob.toml and default. Flags win over the environment, the environment over the file, the file over
// the default. Everything is checked here, once; a mistake is an error that names the option and shows a valid value.
//
// It is not for what a workspace sets at run time (agents' settings, provider keys: those are rows of the store), and it
// opens nothing but hob.toml and the files that *_FILE variables name.
package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hob"
)

// FileName is the configuration file, looked for in the data folder.
const FileName = "hob.toml"

// Defaults of what the other commands need to find a server.
const (
	DefaultAddr = "127.0.0.1:8787"
	DefaultData = "./hob-data"
)

// Bounds of options and of the files that hold them.
const (
	MaxDrain      = time.Hour
	MaxMaxRuns    = 100_000
	MaxListItems  = 256
	MaxFileSize   = 1 << 20 // bytes of hob.toml
	MaxSecretSize = 8 << 10 // bytes of a secret, from wherever it comes
	// MinServiceKey is the shortest service key, in bytes, that opens a server beyond loopback.
	MinServiceKey = 16
	// MinJWTSecret is the shortest secret, in bytes, that signs end users' tokens on a server beyond loopback: the size
	// of an HS256 digest, below which the secret is easier to guess than the signature.
	MinJWTSecret = 32
)

// Endpoint is an outside service: a key, an address or both.
type Endpoint struct {
	Key     hob.Secret
	BaseURL string // without a final slash; "" = the service's own
}

// Configured says whether the operator set anything of the endpoint.
func (e Endpoint) Configured() bool { return e.Key != "" || e.BaseURL != "" }

// LogFormat is how log lines are written.
type LogFormat string

// The formats. Auto means text on a terminal and JSON elsewhere.
const (
	LogAuto LogFormat = ""
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// SandboxMode says how code of agents is run on this machine.
type SandboxMode string

// The modes. Auto runs it behind all walls or not at all, Weak also where some of them cannot be had.
const (
	SandboxAuto SandboxMode = "auto"
	SandboxOff  SandboxMode = "off"
	SandboxWeak SandboxMode = "weak"
)

// Config is a server's configuration, complete and checked.
type Config struct {
	Addr            string // host:port to listen on, and where the CLI finds the server
	Data            string // the data folder
	Database        string // "" = SQLite in the data folder, else postgres://…
	ProjectDatabase string // "" = beside Database, else postgres://…

	ServiceKey hob.Secret // a first service key to accept
	JWTSecret  hob.Secret // end users' tokens; "" = none are accepted
	SealKey    hob.Secret // "" = the key file in the data folder
	Key        hob.Secret // what the CLI sends

	// AllowPowerfulRole lets agents query although their database login can do more than it should.
	AllowPowerfulRole bool

	PublicURL string // under which the server is reached from outside; "" = where it listens
	// Storage is where files lie: "" = a folder in the data folder, else s3://bucket/prefix?endpoint=…&region=….
	Storage          string
	StorageAccessKey hob.Secret
	StorageSecretKey hob.Secret
	Sandbox          SandboxMode

	EgressAllow string // comma list of host:port or CIDR:port, read and checked by package egress
	CORSOrigins []string
	RateLimit   bool
	Drain       time.Duration
	MaxRuns     int // driven at once
	LogLevel    slog.Level
	LogFormat   LogFormat

	OpenAI, Anthropic, Gemini, OpenRouter Endpoint
	OllamaHost                            string // a URL; "" = looked for on its usual port
	Exa, Firecrawl, CodeSandbox           Endpoint

	settings []Setting
}

// Source is where a value came from.
type Source string

// The sources, strongest first.
const (
	FromFlag        Source = "flag"
	FromEnvironment Source = "environment"
	FromFile        Source = "file"
	FromDefault     Source = "default"
)

// Setting is one option as it stands, fit to be shown: a secret reads as hob.Mask, a password in a URL as xxxxx.
type Setting struct {
	Name   string `json:"name"` // the flag, or the variable of options that have none
	Value  string `json:"value"`
	Source Source `json:"source"`
}

// Dump gives every option in the order of the documentation, secrets hidden.
func (c Config) Dump() []Setting { return c.settings }

// Load adds the options to the command's flags, parses args, and returns the configuration and the words of args that
// are no flags. Flags may stand before and behind them; everything behind "--" is a word. getenv gives "" for variables
// that are not set. All mistakes are told at once; the error is hob.Invalid, or flag.ErrHelp where help was asked for.
func Load(flags *flag.FlagSet, args []string, getenv func(string) string) (Config, []string, error) {
	given := addFlags(flags)
	rest, err := parse(flags, args)
	if err != nil {
		return Config{}, nil, err
	}
	l := loader{flags: given, getenv: getenv}
	c, err := l.load()
	return c, rest, err
}

// addFlags defines the flags and returns the map that parsing fills.
func addFlags(flags *flag.FlagSet) map[string]string {
	flags.SetOutput(io.Discard) // errors are returned; help is the command's to print
	given := map[string]string{}
	for _, o := range options() {
		if o.flag == "" {
			continue
		}
		flags.Func(o.flag, o.help, func(v string) error { given[o.flag] = v; return nil })
	}
	return given
}

func parse(flags *flag.FlagSet, args []string) ([]string, error) {
	dashes := strings.NewReplacer("for flag -", "for flag --", "an argument: -", "an argument: --") // as the help writes them
	var words, tail []string
	for i, a := range args {
		if a == "--" {
			args, tail = args[:i], args[i+1:]
			break
		}
	}
	for {
		if err := flags.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
			if unknown {
				return nil, hob.Errorf(hob.Invalid, "there is no flag --%s", name).With(UnknownFlag, name)
			}
			return nil, hob.Errorf(hob.Invalid, "%s", dashes.Replace(err.Error())).With(UnknownFlag, "")
		}
		if flags.NArg() == 0 {
			return append(words, tail...), nil
		}
		words = append(words, flags.Arg(0))
		args = flags.Args()[1:]
	}
}

// UnknownFlag is the detail of errors about the flags of a command line: the name that no flag has, "" where a known flag
// was used wrongly.
const UnknownFlag = "flag"

type loader struct {
	flags  map[string]string
	getenv func(string) string
	file   map[string]string
	path   string
}

func (l *loader) load() (Config, error) {
	c := Config{}
	table := options()
	data, _, err := l.value(table[dataRow])
	if err != nil {
		return Config{}, err
	}
	l.path = filepath.Join(data, FileName)
	if l.file, err = readFile(l.path, table); err != nil {
		return Config{}, err
	}
	var wrong []error
	for _, o := range table {
		raw, source, err := l.value(o)
		if err == nil && raw != "" {
			if err = o.set(&c, raw); err != nil {
				err = o.wrong(l.spelling(o, source), err)
			}
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		c.settings = append(c.settings, Setting{Name: o.name(), Value: o.show(raw), Source: source})
	}
	return c, errors.Join(wrong...)
}

// value finds an option's strongest value. An empty variable counts as not set, as vendors' tools do; an empty flag is
// a value, so that it can undo what the environment says.
func (l *loader) value(o option) (string, Source, error) {
	if v, ok := l.flags[o.flag]; ok && o.flag != "" {
		return v, FromFlag, nil
	}
	v, err := l.environment(o)
	if v != "" || err != nil {
		return v, FromEnvironment, err
	}
	if v, ok := l.file[o.key()]; ok {
		return v, FromFile, nil
	}
	return o.def, FromDefault, nil
}

func (l *loader) environment(o option) (string, error) {
	v := l.getenv(o.env)
	if !o.secret {
		return v, nil
	}
	path := l.getenv(o.env + "_FILE")
	switch {
	case path == "":
		return v, nil
	case v != "":
		return "", hob.Errorf(hob.Invalid, "%s and %s_FILE are both set; unset one of them", o.env, o.env)
	}
	b, err := readLimited(path, MaxSecretSize)
	if err != nil {
		return "", hob.Errorf(hob.Invalid, "%s_FILE: %s", o.env, err.Error())
	}
	if v = strings.TrimRight(string(b), "\r\n"); v == "" {
		return "", hob.Errorf(hob.Invalid, "%s_FILE: %s is empty", o.env, path)
	}
	return v, nil
}

// spelling is how the operator wrote the option, for errors.
func (l *loader) spelling(o option, s Source) string {
	switch s {
	case FromFlag:
		return "--" + o.flag
	case FromFile:
		return o.key() + " in " + l.path
	case FromEnvironment, FromDefault:
	}
	return o.env
}

// readLimited reads a small file. The error names the file once.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return b, nil
}

// Loopback says whether only this machine can reach the address that is listened on.
func (c Config) Loopback() bool {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// CheckExposed refuses a server that others can reach while nobody but its own first start has set who may enter: beyond
// loopback the operator gives the service key. The error is hob.Invalid.
func (c Config) CheckExposed() error {
	switch {
	case c.Loopback():
		return nil
	case c.ServiceKey == "":
		return hob.Errorf(hob.Invalid, "%s is open to other machines, which needs a service key of your own: set HOB_SERVICE_KEY, "+
			"for example to the output of `openssl rand -hex 32`, or listen on 127.0.0.1", c.Addr)
	case len(c.ServiceKey) < MinServiceKey:
		return hob.Errorf(hob.Invalid, "HOB_SERVICE_KEY must have at least %d characters when %s is open to other machines",
			MinServiceKey, c.Addr)
	case c.JWTSecret != "" && len(c.JWTSecret) < MinJWTSecret:
		return hob.Errorf(hob.Invalid, "HOB_JWT_SECRET must have at least %d characters when %s is open to other machines",
			MinJWTSecret, c.Addr)
	}
	return nil
}

// URL is where this machine finds the server: a server on all addresses is reached by loopback.
func (c Config) URL() string {
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return "http://" + c.Addr
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}
