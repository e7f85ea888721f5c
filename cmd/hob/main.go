// Command hob is the server and its tools: it serves agents over HTTP, checks an installation, backs it up, manages API
// keys and talks to an agent in the terminal. This package parses words and joins the parts; it decides nothing about runs,
// rights or SQL, which live below internal/.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"hob"
	"hob/internal/config"
	"hob/internal/sandbox"
)

// Exit codes.
const (
	exitOK          = 0
	exitFault       = 1   // the command did not do what it was asked
	exitUsage       = 2   // the command line or the configuration is wrong
	exitInterrupted = 130 // Ctrl-C, as shells tell it
)

// world is what a command may touch.
type world struct {
	program string // as it was called, for hints that can be copied
	args    []string
	getenv  func(string) string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
}

func main() {
	if sandbox.Helped() {
		os.Exit(sandbox.Help())
	}
	os.Exit(run(context.Background(), world{os.Args[0], os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr}))
}

// command is one of hob's commands. do gets the world with its own arguments alone.
type command struct {
	name, args, summary string
	details             string   // printed by its help
	options             []string // of the configuration, that matter to it; nil = all, empty = none
	do                  func(context.Context, world) error
}

// clientOptions are what a command needs to find a server and its key.
func clientOptions() []string { return []string{"--addr", "--data", "--service-key", "HOB_KEY"} }

func commands() []command {
	return []command{
		{"serve", "[flags]", "run the server: API, event streams, workers", serveHelp, nil, serve},
		{"chat", "AGENT [MESSAGE]", "talk to an agent in the terminal", chatHelp, clientOptions(), chat},
		{"approvals", "[approve|deny ID]", "see and decide what runs wait for", approvalsHelp, clientOptions(), approvals},
		{"key", "create|list|revoke", "manage API keys", keyHelp, clientOptions(), keys},
		{"doctor", "[--session ID]", "check the installation, or a session's history", doctorHelp, storeOptions(), doctor},
		{"provider", "test URL --model M", "find out what a model endpoint can do", providerHelp, providerOptions(), providers},
		{"backup", "[FILE]", "write everything into one file, while the server runs", backupHelp, storeOptions(), makeBackup},
		{"restore", "FILE", "put a backup into an empty installation", restoreHelp, restoreOptions(), restore},
		{"migrate", "status|up|--to URL", "bring the schema up to date, or move to Postgres", migrateHelp, storeOptions(), migrate},
		{"audit", "verify|export", "check the audit log's chain, or write it out", auditHelp, storeOptions(), audit},
		{"version", "[--json]", "print the version", versionHelp, []string{}, printVersion},
	}
}

// exit is an error that only carries an exit code: what there was to say has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is a mistake in the words of a command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// run carries out one command line and returns the exit code.
func run(ctx context.Context, w world) int {
	name, rest := "help", []string(nil)
	if len(w.args) > 0 {
		name, rest = w.args[0], w.args[1:]
	}
	switch name {
	case "help", "-h", "-help", "--help":
		return help(w, rest)
	case "-v", "-version", "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			w.args = rest
			return answer(w, c, c.do(ctx, w))
		}
	}
	fmt.Fprintf(w.stderr, "hob: there is no command %q.", name)
	if near := nearest(name, commandNames()); near != "" {
		fmt.Fprintf(w.stderr, " Did you mean: hob %s", near)
	}
	fmt.Fprint(w.stderr, "\nAll commands: hob help\n")
	return exitUsage
}

// answer tells the outcome of a command and turns it into an exit code.
func answer(w world, c command, err error) int {
	var code exit
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, flag.ErrHelp):
		return helpFor(w, c)
	case errors.As(err, &usage):
		fmt.Fprintf(w.stderr, "hob %s: %s\nusage: hob %s %s; more: hob help %s\n", c.name, usage, c.name, c.args, c.name)
		return exitUsage
	}
	fmt.Fprintf(w.stderr, "hob %s: %s\n", c.name, plain(err.Error()))
	if errors.Is(err, errConfig) {
		return exitUsage
	}
	return exitFault
}

// errConfig marks mistakes of the configuration.
var errConfig = errors.New("configuration")

// configError keeps the text of a configuration mistake and marks it.
type configError struct{ error }

func (e configError) Is(target error) bool { return target == errConfig }
func (e configError) Unwrap() error        { return e.error }

// load reads the configuration beside a command's own flags and returns the words left over.
func (w world) load(flags *flag.FlagSet) (config.Config, []string, error) {
	c, words, err := config.Load(flags, w.args, w.getenv)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		err = configError{withHint(flags, err)}
	}
	return c, words, err
}

// withHint names the flag that a mistyped one was probably meant to be, and where all of them are listed.
func withHint(flags *flag.FlagSet, err error) error {
	var e *hob.Error
	if !errors.As(err, &e) {
		return err
	}
	name, aboutFlags := e.Details[config.UnknownFlag].(string)
	if !aboutFlags {
		return err
	}
	hint := ""
	if name != "" {
		var names []string
		flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		if near := nearest(name, names); near != "" {
			hint = ". Did you mean: --" + near
		}
	}
	return hob.Errorf(hob.Invalid, "%s%s\nits flags are listed by: hob help %s", e.Message, hint, flags.Name())
}

func help(w world, topic []string) int {
	if len(topic) > 0 {
		for _, c := range commands() {
			if c.name == topic[0] {
				return helpFor(w, c)
			}
		}
		fmt.Fprintf(w.stderr, "hob help: there is no command %q. All commands: hob help\n", topic[0])
		return exitUsage
	}
	var b strings.Builder
	b.WriteString(helpHead)
	column := 0
	for _, c := range commands() {
		column = max(column, len(c.name)+len(c.args))
	}
	for _, c := range commands() {
		fmt.Fprintf(&b, "  hob %-*s  %s\n", column+1, c.name+" "+c.args, c.summary)
	}
	b.WriteString(helpTail)
	fmt.Fprint(w.stdout, b.String())
	return exitOK
}

const helpHead = `Hob serves AI agents: models that call tools, over HTTP with streaming. One program, no other service needed.

Start here, in two terminals:
  hob serve                    makes ./hob-data with a demo agent, prints the address and a key
  hob chat demo "How many orders are open?"

Commands:
`

const helpTail = `
More about one of them: hob help COMMAND. Options and variables: hob help serve.
`

func helpFor(w world, c command) int {
	fmt.Fprintf(w.stdout, "usage: hob %s %s\n\n%s", c.name, c.args, c.details)
	if c.options != nil && len(c.options) == 0 {
		return exitOK
	}
	if err := config.WriteUsage(w.stdout, c.options...); err != nil {
		return exitFault
	}
	return exitOK
}

func commandNames() []string {
	names := []string{"help"}
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return names
}

// nearest finds the word that a mistyped one was meant to be, "" if none is close: one letter of three may be wrong, and two
// of four.
func nearest(word string, candidates []string) string {
	wrong := len(word) / 3
	if len(word) > 3 {
		wrong = max(2, wrong)
	}
	best, least := "", wrong+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to add, drop or change to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

// explain returns the message of an error that is meant for people, without the cause that is meant for logs.
func explain(err error) string {
	var e *hob.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}
