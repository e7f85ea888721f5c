//go:build !seeded

// Package seeded holds the faults that the crash tests plant to see whether they would be found: an acknowledgement
// before the commit, a fence that is not looked at, and the like. They are in programs built with the tag "seeded" alone;
// everywhere else Bug is false, and the compiler leaves the planted code out. It is not for switches of any other kind.
package seeded

// Bug says whether the named fault is planted in this process.
func Bug(string) bool { return false }
