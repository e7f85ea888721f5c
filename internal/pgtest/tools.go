package pgtest

import (
	"context"
	"syscall"
)

// Binaries finds the folder that holds initdb and postgres, for programs that run a server by themselves.
func Binaries(ctx context.Context) (string, error) { return binaries(ctx) }

// Credential is the user whom a server of the caller's own has to run as, since Postgres refuses to run as root. nil means
// the caller's own.
func Credential() (*syscall.Credential, error) { return credential() }
