package builtin

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"hob"
	"hob/internal/egress"
)

// Keys of config_override by which an assignment limits a tool that reaches the network.
const (
	allowedHostsKey = "allowed_hosts"
	methodsKey      = "methods"
	timeoutKey      = "timeout_seconds"
	maxCharsKey     = "max_chars"
	maxCallsKey     = "max_calls_per_run"
	recoveryKey     = "recovery"
	resultKey       = "result"
)

// Bounds of these keys.
const (
	minShown = 100     // characters; less would not hold an error
	maxShown = 200_000 // characters
	maxCalls = 1000    // of one tool in a run
)

// limits are what an assignment sets for a tool that reaches the network. Zero values mean no limit beyond the usual.
type limits struct {
	hosts    []string // empty: the public internet
	methods  []string // empty: all
	timeout  time.Duration
	maxChars int
	maxCalls int
	recovery hob.Recovery // "" where the assignment says nothing
	full     bool         // of http_request: the result is an object
}

// readLimits reads the keys that an assignment has. The error is Invalid and names the key.
func readLimits(keys map[string]json.RawMessage) (*limits, error) {
	l := &limits{}
	for _, key := range []struct {
		name string
		read func(json.RawMessage) error
	}{
		{allowedHostsKey, l.readHosts},
		{methodsKey, l.readMethods},
		{timeoutKey, l.readTimeout},
		{recoveryKey, l.readRecovery},
		{resultKey, l.readResult},
		{maxCharsKey, func(raw json.RawMessage) error { return readCount(raw, maxCharsKey, minShown, maxShown, &l.maxChars) }},
		{maxCallsKey, func(raw json.RawMessage) error { return readCount(raw, maxCallsKey, 1, maxCalls, &l.maxCalls) }},
	} {
		if raw, ok := keys[key.name]; ok {
			if err := key.read(raw); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// readHosts refuses an empty list: to some it means nothing, to others everything.
func (l *limits) readHosts(raw json.RawMessage) error {
	if json.Unmarshal(raw, &l.hosts) != nil || len(l.hosts) == 0 {
		return badKey(allowedHostsKey, `must be a list of at least one host, like ["api.example.com","*.example.org"]; leave it out to allow the public internet`)
	}
	if err := egress.CheckAllowedHosts(l.hosts); err != nil {
		return badKey(allowedHostsKey, "is not usable: %s", err.Error())
	}
	return nil
}

func (l *limits) readMethods(raw json.RawMessage) error {
	var names []string
	if json.Unmarshal(raw, &names) != nil || len(names) == 0 {
		return badKey(methodsKey, `must be a list of at least one method, like ["GET","HEAD"]; leave it out to allow all`)
	}
	for _, name := range names {
		name = strings.ToUpper(name)
		if !isMethod(name) {
			return badKey(methodsKey, "has %q; the methods are GET, HEAD, POST, PUT, PATCH, DELETE", shorten(name))
		}
		if !slices.Contains(l.methods, name) {
			l.methods = append(l.methods, name)
		}
	}
	return nil
}

func (l *limits) readTimeout(raw json.RawMessage) error {
	var n float64
	// Written so that NaN fails too.
	if json.Unmarshal(raw, &n) != nil || !(n > 0 && n <= MaxToolTimeout.Seconds()) {
		return badKey(timeoutKey, "must be a number above 0 and at most %g", MaxToolTimeout.Seconds())
	}
	l.timeout = time.Duration(n * float64(time.Second))
	return nil
}

func (l *limits) readRecovery(raw json.RawMessage) error {
	_ = json.Unmarshal(raw, &l.recovery) // what is no text stays "", which is refused
	switch l.recovery {
	case hob.RecoverRead, hob.RecoverKeyed, hob.RecoverOnce:
		return nil
	default:
		return badKey(recoveryKey, "must be read, keyed or once")
	}
}

func (l *limits) readResult(raw json.RawMessage) error {
	var form string
	_ = json.Unmarshal(raw, &form)
	if form != "body" && form != "full" {
		return badKey(resultKey, "must be body or full")
	}
	l.full = form == "full"
	return nil
}

func readCount(raw json.RawMessage, key string, low, high int, to *int) error {
	var n float64
	if json.Unmarshal(raw, &n) != nil || n != math.Trunc(n) || n < float64(low) || n > float64(high) {
		return badKey(key, "must be a whole number from %d to %d", low, high)
	}
	*to = int(n)
	return nil
}

// chars is how many characters are shown where the usual number is given. An assignment may ask for more than usual.
func (l *limits) chars(usual int) int { return orDefault(l.maxChars, usual) }

// allows says whether a method is on the assignment's list.
func (l *limits) allows(method string) bool {
	return len(l.methods) == 0 || slices.Contains(l.methods, method)
}

// redirectsFor is how many redirects a request follows: a request that may have an effect follows none, since it would
// be sent twice or to somebody else.
func redirectsFor(method string) int {
	if method == http.MethodGet || method == http.MethodHead {
		return egress.MaxRedirects
	}
	return 0
}

// maxCounted is how many runs callCounts remembers; beyond it the counts of the older half are forgotten.
const maxCounted = 10_000

// callCounts counts the calls of tools whose assignment bounds them per run. A count lives in this process: it survives
// waiting for an approval, and begins anew where another server takes the run over. It is safe for concurrent use.
type callCounts struct {
	mu  sync.Mutex
	new map[callCount]int // the counts of late, and all that were touched since
	old map[callCount]int
}

type callCount struct {
	run  hob.RunID
	tool string
}

func newCallCounts() *callCounts { return &callCounts{new: map[callCount]int{}} }

// take counts a call and says whether the run may still make it. A repeated try is no further call.
func (c *callCounts) take(call hob.Call, most int) bool {
	if most == 0 || call.Attempt > 1 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := callCount{call.Run, call.Name}
	n, known := c.new[key]
	if !known {
		n = c.old[key]
		if len(c.new) >= maxCounted/2 {
			c.new, c.old = map[callCount]int{}, c.new
		}
	}
	if n >= most {
		return false
	}
	c.new[key] = n + 1
	return true
}

// spent is the text about a tool that may not be called again in this run.
func (l *limits) spent(tool string) string {
	if l.maxCalls == 1 {
		return tool + " may be called once in a run, which it was"
	}
	return fmt.Sprintf("%s may be called %d times in a run, which it was", tool, l.maxCalls)
}
