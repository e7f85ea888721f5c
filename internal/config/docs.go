package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteUsage prints the flags and variables for the terminal: those of the given names (as in Setting.Name), or all.
func WriteUsage(w io.Writer, names ...string) error {
	var b strings.Builder
	group := ""
	for _, o := range options() {
		if len(names) > 0 && !slices.Contains(names, o.name()) {
			continue
		}
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		head := o.env
		if o.flag != "" {
			head = "--" + o.flag + ", " + o.env
		}
		fmt.Fprintf(&b, "  %s", head)
		if o.def != "" {
			fmt.Fprintf(&b, " (default %s)", o.def)
		}
		fmt.Fprintf(&b, "\n      %s\n", o.help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown is docs/configuration.md, made from the table so that the two cannot differ.
func Markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	group := ""
	for _, o := range options() {
		if o.group != group {
			group = o.group
			fmt.Fprintf(&b, "\n## %s\n\n| flag | environment | key in hob.toml | default | meaning |\n|---|---|---|---|---|\n", group)
		}
		env := "`" + o.env + "`"
		if o.secret {
			env += ", `" + o.env + "_FILE`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s. Example: `%s` |\n",
			code(dashed(o.flag)), env, code(o.fileKey()), code(o.def), o.help, o.example)
	}
	return b.String()
}

const docsHead = `# Configuration

<!-- Made from the option table in internal/config by ` + "`make golden`" + `; do not edit. -->

Every option has a default; a server started without any runs on SQLite in ` + "`./hob-data`" + `, reachable from this machine
only. A flag wins over the environment, the environment over ` + "`hob.toml`" + ` in the data folder, the file over the default.
A key in the file that no option has is an error. Secrets may also be given as the path of a file that holds them, in the
variable with ` + "`_FILE`" + ` behind its name. ` + "`hob doctor`" + ` shows what is in force and where it came from, secrets hidden.

` + "```toml" + `
# hob.toml
addr = "127.0.0.1:8787"
cors_origins = ["https://app.example.com"]
rate_limit = true
openai_base_url = "http://127.0.0.1:8000/v1"
` + "```" + `
`

func dashed(flag string) string {
	if flag == "" {
		return ""
	}
	return "--" + flag
}

func code(s string) string {
	if s == "" {
		return "–"
	}
	return "`" + s + "`"
}

// fileKey is the key to document: the data folder cannot be set in the file that lies in it.
func (o option) fileKey() string {
	if o.flag == "data" {
		return ""
	}
	return o.key()
}
