package config

import (
	"strings"

	"hob"
)

// option is a row of the table. Its key in hob.toml is the flag, or the variable in lower case, with underscores.
type option struct {
	flag    string // "" where a flag would show a secret in the list of processes, or nobody needs one
	env     string
	def     string
	secret  bool
	group   string
	help    string
	example string
	set     func(*Config, string) error // called with the value unless it is empty
}

// dataRow is the row of --data, which has to be known before hob.toml can be read.
const dataRow = 1

// The groups, in the order of the documentation.
const (
	groupServer   = "Server"
	groupAccess   = "Access"
	groupModels   = "Models"
	groupServices = "Services for tools"
	groupCLI      = "Other commands"
)

// options is the whole table.
func options() []option {
	return append(serverOptions(), append(accessOptions(), append(modelOptions(), serviceOptions()...)...)...)
}

func serverOptions() []option {
	return []option{
		{
			flag: "addr", env: "HOB_ADDR", def: DefaultAddr, group: groupServer, example: "127.0.0.1:8787",
			help: "address to listen on, and where the other commands find the server",
			set:  func(c *Config, v string) error { return setAddr(&c.Addr, v) },
		},
		{
			flag: "data", env: "HOB_DATA", def: DefaultData, group: groupServer, example: "/var/lib/hob",
			help: "folder of the database, files and the seal key; made with mode 0700",
			set:  func(c *Config, v string) error { return setPath(&c.Data, v) },
		},
		{
			flag: "database", env: "HOB_DATABASE_URL", group: groupServer, example: "postgres://hob:secret@localhost:5432/hob",
			help: "empty: SQLite in the data folder; else the URL of a Postgres database",
			set:  func(c *Config, v string) error { return setPostgres(&c.Database, v) },
		},
		{
			flag: "project-database", env: "HOB_PROJECT_DATABASE_URL", group: groupServer,
			example: "postgres://owner:secret@localhost:5432/shop",
			help: "what the database tools reach; empty: project.db in the data folder, or, with a Postgres --database, " +
				"that same database",
			set: func(c *Config, v string) error { return setPostgres(&c.ProjectDatabase, v) },
		},
		{
			flag: "allow-powerful-role", env: "HOB_ALLOW_POWERFUL_ROLE", def: "off", group: groupServer, example: "off",
			help: "on keeps the database tools although the agents' Postgres login, or its maker's, can do more than it should; hob doctor names what",
			set:  func(c *Config, v string) error { return setSwitch(&c.AllowPowerfulRole, v) },
		},
		{
			flag: "public-url", env: "HOB_PUBLIC_URL", group: groupServer, example: "https://hob.example.com",
			help: "address under which the server is reached from outside, for signed links to files; empty: the address it listens on",
			set:  func(c *Config, v string) error { return setURL(&c.PublicURL, v) },
		},
		{
			flag: "storage", env: "HOB_STORAGE_URL", group: groupServer, example: "s3://hob-files/eu?endpoint=https://s3.example.com&region=eu-central-1",
			help: "where files lie; empty: the folder files in the data folder; else an S3-compatible bucket, which all servers of one database share",
			set:  func(c *Config, v string) error { return setStorage(&c.Storage, v) },
		},
		{
			flag: "sandbox", env: "HOB_SANDBOX", def: "auto", group: groupServer, example: "auto",
			help: "auto runs agents' code on this machine only behind all walls, weak also where some cannot be had, off never",
			set:  func(c *Config, v string) error { return setSandbox(&c.Sandbox, v) },
		},
		{
			flag: "egress-allow", env: "HOB_EGRESS_ALLOW", group: groupServer, example: "intranet.example:443,10.1.0.0/16:8080",
			help: "private destinations that tools may reach all the same: comma list of host:port or CIDR:port",
			set:  func(c *Config, v string) error { c.EgressAllow = v; return nil },
		},
		{
			flag: "log", env: "HOB_LOG", def: "info", group: groupServer, example: "debug,text",
			help: "debug, info, warn or error; add ,text or ,json to choose the form (text on a terminal, else JSON)",
			set:  setLog,
		},
		{
			flag: "drain", env: "HOB_DRAIN", def: "30s", group: groupServer, example: "30s",
			help: "how long a stopping server lets runs finish or be handed over, up to 1h; 0 ends at once",
			set:  func(c *Config, v string) error { return setDuration(&c.Drain, v, MaxDrain) },
		},
		{
			flag: "max-runs", env: "HOB_MAX_RUNS", def: "2048", group: groupServer, example: "2048",
			help: "runs driven at once, 1 to 100000; further ones are refused, before anything of them is stored",
			set:  func(c *Config, v string) error { return setCount(&c.MaxRuns, v, MaxMaxRuns) },
		},
		{
			env: "HOB_CORS_ORIGINS", group: groupServer, example: "https://app.example.com",
			help: "web pages that may call the API: comma list of origins; empty: only those the server sends itself",
			set:  func(c *Config, v string) error { return setList(&c.CORSOrigins, v, checkOrigin) },
		},
		{
			env: "HOB_RATE_LIMIT", def: "on", group: groupServer, example: "on",
			help: "off lifts the limits on requests and streams per key",
			set:  func(c *Config, v string) error { return setSwitch(&c.RateLimit, v) },
		},
	}
}

func accessOptions() []option {
	return []option{
		{
			flag: "service-key", env: "HOB_SERVICE_KEY", secret: true, group: groupAccess, example: "the output of: openssl rand -hex 32",
			help: "a service key to accept; without one the first start makes a key and prints it once. Needed to listen beyond loopback",
			set:  func(c *Config, v string) error { return setSecret(&c.ServiceKey, v) },
		},
		{
			env: "HOB_JWT_SECRET", secret: true, group: groupAccess, example: "the output of: openssl rand -hex 32",
			help: "accept end users' tokens signed with this secret (HS256, aud authenticated, sub the user's id)",
			set:  func(c *Config, v string) error { return setSecret(&c.JWTSecret, v) },
		},
		{
			env: "HOB_SEAL_KEY", secret: true, group: groupAccess, example: "the output of: openssl rand -base64 32",
			help: "key that seals secrets at rest; empty: the key file in the data folder, made at the first start",
			set:  func(c *Config, v string) error { return setSecret(&c.SealKey, v) },
		},
		{
			env: "HOB_STORAGE_ACCESS_KEY", secret: true, group: groupAccess, example: "the key id as the service shows it",
			help: "access key id for an S3-compatible --storage",
			set:  func(c *Config, v string) error { return setSecret(&c.StorageAccessKey, v) },
		},
		{
			env: "HOB_STORAGE_SECRET_KEY", secret: true, group: groupAccess, example: "the key as the service shows it",
			help: "secret access key for it",
			set:  func(c *Config, v string) error { return setSecret(&c.StorageSecretKey, v) },
		},
		{
			env: "HOB_KEY", secret: true, group: groupCLI, example: "hob_…",
			help: "key that hob chat and hob key send; empty: the first service key, kept in the data folder",
			set:  func(c *Config, v string) error { return setSecret(&c.Key, v) },
		},
	}
}

func modelOptions() []option {
	rows := []option{}
	for _, p := range []struct {
		prefix, name, url string
		at                func(*Config) *Endpoint
	}{
		{"OPENAI", "OpenAI, or any server that speaks its API; with the version", "https://api.openai.com/v1", func(c *Config) *Endpoint { return &c.OpenAI }},
		{"ANTHROPIC", "Anthropic; without the version", "https://api.anthropic.com", func(c *Config) *Endpoint { return &c.Anthropic }},
		{"GEMINI", "Gemini; without the version", "https://generativelanguage.googleapis.com", func(c *Config) *Endpoint { return &c.Gemini }},
		{"OPENROUTER", "OpenRouter; with the version", "https://openrouter.ai/api/v1", func(c *Config) *Endpoint { return &c.OpenRouter }},
	} {
		name, _, _ := strings.Cut(p.name, ";")
		rows = append(rows,
			keyOption(groupModels, p.prefix+"_API_KEY", "key for "+name, p.at),
			urlOption(groupModels, p.prefix+"_BASE_URL", "address of "+p.name+"; may be private", p.url, p.at))
	}
	return append(rows, option{
		env: "OLLAMA_HOST", group: groupModels, example: "http://127.0.0.1:11434",
		help: "address of Ollama; empty: looked for on its usual port",
		set:  func(c *Config, v string) error { return setOllama(&c.OllamaHost, v) },
	})
}

func serviceOptions() []option {
	exa := func(c *Config) *Endpoint { return &c.Exa }
	crawl := func(c *Config) *Endpoint { return &c.Firecrawl }
	sandbox := func(c *Config) *Endpoint { return &c.CodeSandbox }
	return []option{
		keyOption(groupServices, "EXA_API_KEY", "key for Exa", exa),
		urlOption(groupServices, "EXA_BASE_URL", "address of Exa", "https://api.exa.ai", exa),
		keyOption(groupServices, "FIRECRAWL_API_KEY", "key for Firecrawl", crawl),
		urlOption(groupServices, "FIRECRAWL_API_BASE", "address of Firecrawl; with the version", "https://api.firecrawl.dev/v1", crawl),
		urlOption(groupServices, "CODE_SANDBOX_URL", "address of an outside sandbox", "http://127.0.0.1:8100", sandbox),
		keyOption(groupServices, "CODE_SANDBOX_API_KEY", "key for that sandbox", sandbox),
	}
}

func keyOption(group, env, help string, at func(*Config) *Endpoint) option {
	return option{
		env: env, secret: true, group: group, help: help, example: "the key as the service shows it",
		set: func(c *Config, v string) error { return setSecret(&at(c).Key, v) },
	}
}

func urlOption(group, env, help, example string, at func(*Config) *Endpoint) option {
	return option{
		env: env, group: group, help: help, example: example,
		set: func(c *Config, v string) error { return setURL(&at(c).BaseURL, v) },
	}
}

// name is how the option is listed.
func (o option) name() string {
	if o.flag != "" {
		return "--" + o.flag
	}
	return o.env
}

// key is the option's key in hob.toml.
func (o option) key() string {
	if o.flag != "" {
		return strings.ReplaceAll(o.flag, "-", "_")
	}
	return strings.TrimPrefix(strings.ToLower(o.env), "hob_")
}

// wrong tells what is the matter with a value, and shows one that works. It never repeats a secret.
func (o option) wrong(spelling string, err error) error {
	return hob.Errorf(hob.Invalid, "%s %s; for example: %s", spelling, err.Error(), o.example).With("option", o.name())
}

// show is a value fit for the terminal.
func (o option) show(v string) string {
	if o.secret && v != "" {
		return hob.Mask
	}
	return redact(v)
}
