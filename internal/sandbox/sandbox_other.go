//go:build !linux || (!amd64 && !arm64)

package sandbox

import (
	"context"
	"runtime"
	"time"
)

// Helped says whether this process was started as a helper; here none is.
func Helped() bool { return false }

// Help does the work of a helper; here there is none.
func Help() int { return 1 }

// nowhere is the sandbox of systems that lack the walls.
type nowhere struct{}

func newRunner(Config) runner { return nowhere{} }

func (nowhere) check(context.Context) ([]Wall, error) {
	return nil, &OffError{
		Missing: "namespaces", Reason: "code can be run on Linux (amd64, arm64) only, not on " + runtime.GOOS + "/" + runtime.GOARCH,
		Fix: "run hob on Linux, or set CODE_SANDBOX_URL to a sandbox elsewhere",
	}
}

func (n nowhere) run(ctx context.Context, _ Request, _ time.Duration) (Result, error) {
	_, err := n.check(ctx)
	return Result{}, err
}

func (nowhere) languages() []Language { return Languages() }

func (nowhere) close() {}
