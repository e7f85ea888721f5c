//go:build seeded

// Package seeded holds the faults that the crash tests plant to see whether they would be found.
package seeded

import (
	"os"
	"sync"
)

// Variable names the fault that a program built with the tag "seeded" has.
const Variable = "HOB_SEEDED_BUG"

//nolint:gochecknoglobals // read once, in programs for tests alone
var planted = sync.OnceValue(func() string { return os.Getenv(Variable) })

// Bug says whether the named fault is planted in this process.
func Bug(name string) bool { return name == planted() }
