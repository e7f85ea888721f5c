package settings

import (
	"fmt"
	"strings"

	"hob"
)

// Markdown is docs/settings.md, made from the registry so that the two cannot differ.
func Markdown() string {
	var b strings.Builder
	b.WriteString(docsHead)
	for _, c := range Categories() {
		fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | values | variable | meaning |\n|---|---|---|---|---|---|\n", c.Label+" (`"+c.Name+"`)")
		for _, k := range Registry() {
			if k.Category == c.Name {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | `%s` | %s |\n",
					k.Name, kind(k), code(k.Default), values(k), k.variable(), k.Description)
			}
		}
	}
	b.WriteString(docsTail)
	return b.String()
}

func kind(k Key) string {
	if k.Secret {
		return "secret"
	}
	return string(k.Type)
}

func code(s string) string {
	if s == "" {
		return "–"
	}
	return "`" + s + "`"
}

func values(k Key) string {
	switch {
	case k.Choices != nil:
		return strings.Join(k.Choices, ", ")
	case k.Min != nil && k.Max != nil:
		return plain(*k.Min) + " to " + plain(*k.Max)
	case k.Type == hob.StringSetting && k.MaxBytes > 0:
		return fmt.Sprintf("at most %d bytes", k.MaxBytes)
	case k.Type == hob.StringSetting:
		return fmt.Sprintf("at most %d bytes", MaxText)
	case k.Type == hob.BoolSetting:
		return "true, false"
	}
	return "any"
}

const docsHead = `# Settings

<!-- Made from the registry in internal/settings by ` + "`make golden`" + `; do not edit. -->

Settings are what an administrator changes for a workspace while the server runs: ` + "`GET` and `PUT /api/settings`" + `
([how](api.md#settings)). They count from the next run on, without a restart.

A value is looked for in this order, and the first one found holds:

1. what the workspace set (` + "`\"source\": \"workspace\"`" + ` in the list)
2. the variable in the environment of the server, for all workspaces (` + "`environment`" + `)
3. the default (` + "`default`" + `)

What an agent sets for itself, or a run asks for, comes before all of them where it speaks of the same thing: the timeout of a
custom tool, for example, before ` + "`CUSTOM_TOOL_TIMEOUT`" + `. What the operator gives a server at its start, as its address or
the keys of model providers, is in [configuration.md](configuration.md).
`

const docsTail = `
## Values

Values may be sent as JSON numbers, ` + "`true` and `false`" + `, or text; blanks around a text are dropped. ` + "`MODEL_PRICES`" + ` may be
sent as a JSON object, too, and reads as compact text. A number must be within its range, ends included. ` + "`true`, `1` and `yes`" + ` are
true. One bad value refuses the whole change. A model that nobody serves, or that is asked of another provider than its first
part seems to name, is kept and told under ` + "`warnings`" + `. A stored value that a later version no longer takes counts as none. A
variable with a bad value keeps the server from starting, and the error names it.

Secrets are sealed at rest and read as ` + "`" + hob.Mask + "`" + `; that text sent back leaves the secret as it is, and an empty one takes it
away.
`
