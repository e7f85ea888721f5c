package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"time"

	"hob"
	"hob/client"
)

const chatHelp = `Sends a message to an agent (name or id) and shows what happens: steps, tool calls with their arguments, shortened results
and the answer as it comes. Without a message it is a conversation: one line, one turn; an empty line does nothing; /exit or
Ctrl-D ends it. Ctrl-C cancels the run; a second one leaves at once.

  --session ID   goes on with that session
  --json         prints the events as they come, one JSON object per line

In a pipe or file only the answer goes to standard output; the rest goes to standard error.

The exit code is 0 when the run completed, 1 when it failed, 130 when Ctrl-C ended it. A connection that breaks is taken
up again where it was. Where a tool call waits for approval you are asked, if standard input is a terminal: y, n or e, a reason behind
it; else the command that decides is shown. The server is found at HOB_ADDR, the key in HOB_KEY or in the data folder. A message that is "-" is
read from standard input.

Options:
`

// Bounds of what is read from the terminal.
const (
	maxInput   = 1 << 20 // bytes of a line, or of a message from standard input
	cancelTime = 10 * time.Second
)

// chatter is one hob chat.
type chatter struct {
	world
	remote  *remote
	agent   hob.Agent
	session hob.SessionID
	asJSON  bool
	signals chan os.Signal
	lines   <-chan string // what is typed, nil as long as nobody read any
	failed  <-chan error
}

func chat(ctx context.Context, w world) error {
	flags := flag.NewFlagSet("chat", flag.ContinueOnError)
	session := flags.String("session", "", "session to go on with")
	asJSON := flags.Bool("json", false, "events as JSON")
	c, words, err := w.load(flags)
	if err != nil {
		return err
	}
	if len(words) == 0 {
		return usageError("which agent? its name or id comes first")
	}
	r, err := connect(c)
	if err != nil {
		return err
	}
	defer r.Close()
	ch := &chatter{world: w, remote: r, session: hob.SessionID(*session), asJSON: *asJSON, signals: make(chan os.Signal, 4)}
	if ch.agent, err = r.agent(ctx, words[0]); err != nil {
		return err
	}
	signal.Notify(ch.signals, os.Interrupt)
	defer signal.Stop(ch.signals)
	if len(words) == 1 {
		return ch.converse(ctx)
	}
	message := strings.Join(words[1:], " ")
	if message == "-" {
		if message, err = readAll(w.stdin); err != nil {
			return err
		}
	}
	return ch.turn(ctx, message)
}

func readAll(in io.Reader) (string, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return "", fmt.Errorf("read the message: %w", err)
	}
	if len(b) > maxInput {
		return "", hob.Errorf(hob.TooLarge, "the message is longer than %d bytes", maxInput)
	}
	return string(b), nil
}

// converse runs a turn per line until the input ends. Its outcome is that of the last turn.
func (c *chatter) converse(ctx context.Context) error {
	asks := terminal(c.stdin) && !c.asJSON
	if asks {
		fmt.Fprintf(c.talk(), "%s (%s). /exit or Ctrl-D ends the conversation.\n", plain(c.agent.Name), plain(c.agent.Model))
	}
	c.listen()
	var last error
	for {
		if asks {
			fmt.Fprint(c.talk(), "\n> ")
		}
		select {
		case <-c.signals:
			return exit(exitInterrupted)
		case line, more := <-c.lines:
			if !more {
				return errors.Join(last, <-c.failed)
			}
			switch line = strings.TrimSpace(line); line {
			case "":
				continue
			case "/exit", "/quit":
				return last
			}
			if last = c.turn(ctx, line); last != nil && !isFailedRun(last) {
				return last
			}
		}
	}
}

// listen begins to read lines, once.
func (c *chatter) listen() {
	if c.lines == nil {
		c.lines, c.failed = readLines(c.stdin)
	}
}

// isFailedRun tells a turn that went wrong, after which one can go on, from a server that cannot be talked to.
func isFailedRun(err error) bool {
	var code exit
	return errors.As(err, &code)
}

// readLines reads in the background, so that a signal is heard while nobody types. The goroutine ends with the input or,
// where nobody takes its line any more, with the process.
func readLines(in io.Reader) (<-chan string, <-chan error) {
	lines, failed := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(in)
		s.Buffer(nil, maxInput)
		for s.Scan() {
			lines <- s.Text()
		}
		failed <- s.Err()
	}()
	return lines, failed
}

// turn sends one message and shows its run to the end. The first Ctrl-C asks the server to cancel the run, whose end is
// then shown as usual; the second one leaves.
func (c *chatter) turn(ctx context.Context, message string) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	watch := &canceller{chatter: c, leave: leave}
	go watch.run(ctx)

	p := c.printer()
	d := c.decider(p)
	if d.person {
		c.listen()
	}
	show := c.shower(p)
	var status hob.Status
	// A key of its own makes the start safe to repeat.
	in := client.RunRequest{Message: message, SessionID: c.session, IdempotencyKey: "chat-" + hob.RandomHex(12)}
	told := streamed(ctx, c.remote.RunStream(ctx, c.agent.ID, in))
	for {
		var typed <-chan string // nil: nobody is asked
		if d.wants() {
			typed = c.lines
		}
		select {
		case line, more := <-typed:
			if !more {
				d.gone()
				continue
			}
			d.line(ctx, line)
			continue
		case t, more := <-told:
			if !more {
				return c.outcome(watch, status)
			}
			if t.err != nil {
				if _, gone := watch.state(); gone {
					return exit(exitInterrupted)
				}
				return c.remote.explain(t.err)
			}
			if err := c.follow(t.Event, watch, &status); err != nil {
				return err
			}
			if err := errors.Join(show(t.Event), d.event(t.Event)); err != nil {
				return err
			}
		}
	}
}

// told is an event of a stream, or the error that ended it.
type told struct {
	hob.Event
	err error
}

// streamed reads a stream on a goroutine, which ends with it or with the context.
func streamed(ctx context.Context, events iter.Seq2[hob.Event, error]) <-chan told {
	out := make(chan told)
	go func() {
		defer close(out)
		for e, err := range events {
			select {
			case out <- told{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// follow learns from an event what the turn has to know.
func (c *chatter) follow(e hob.Event, watch *canceller, status *hob.Status) error {
	var f struct {
		Run     hob.RunID     `json:"run_id"`
		Session hob.SessionID `json:"session_id"`
		Status  hob.Status    `json:"status"`
	}
	if e.Type != hob.EventStart && e.Type != hob.EventComplete {
		return nil
	}
	if err := json.Unmarshal(e.Data, &f); err != nil {
		return fmt.Errorf("read event %d: %w", e.Seq, err)
	}
	if e.Type == hob.EventStart {
		c.session = f.Session
		watch.started(f.Run)
	} else {
		*status = f.Status
	}
	return nil
}

// outcome is how a turn ended whose events have been shown.
func (c *chatter) outcome(watch *canceller, status hob.Status) error {
	switch pressed, _ := watch.state(); {
	case status == hob.Completed:
		return nil
	case pressed:
		return exit(exitInterrupted)
	}
	return exit(exitFault)
}

// decider asks about what the run waits for where somebody is there to answer. Whoever wants JSON reads that, and is not asked.
func (c *chatter) decider(p *printer) *decider {
	return &decider{
		p: p, person: p != nil && terminal(c.stdin),
		decide: func(ctx context.Context, run hob.RunID, d client.Decision) error {
			_, err := c.remote.Approve(ctx, run, d)
			return c.remote.explain(err)
		},
	}
}

// talk is where everything but the answer goes: to the terminal with it, and beside a pipe or file that takes the answer.
func (c *chatter) talk() io.Writer {
	if terminal(c.stdout) {
		return c.stdout
	}
	return c.stderr
}

// printer shows events to a person, nil where programs read them.
func (c *chatter) printer() *printer {
	if c.asJSON {
		return nil
	}
	p := &printer{out: c.talk(), colour: colours(c.talk(), c.getenv)}
	if !terminal(c.stdout) {
		p.answer = c.stdout
	}
	return p
}

// shower gives how events are shown.
func (c *chatter) shower(p *printer) func(hob.Event) error {
	if p != nil {
		return p.event
	}
	return func(e hob.Event) error {
		_, err := fmt.Fprintf(c.stdout, "%s\n", e.Data)
		return err
	}
}
