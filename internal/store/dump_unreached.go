package store

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"hob"
)

// unreached says why a Postgres cannot be reached, for people: where, and the reason, once each. pgx tells both for every
// address of a name, and with them the user.
func unreached(cfg *pgx.ConnConfig, err error) error {
	at := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return hob.Errorf(hob.Unavailable, "Postgres at %s refuses the connection: %s", at, refused.Message)
	}
	var why string
	var name *net.DNSError
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused"
	case errors.As(err, &name):
		why = "the name is not known"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		why = "no answer in time"
	default:
		why = innermost(err)
	}
	return hob.Errorf(hob.Unavailable, "cannot reach Postgres at %s (%s)", at, why)
}

// innermost is the text of the last error of a chain.
func innermost(err error) string {
	for {
		switch e := err.(type) { //nolint:errorlint // the chain is what is walked
		case interface{ Unwrap() error }:
			inner := e.Unwrap()
			if inner == nil {
				return err.Error()
			}
			err = inner
		case interface{ Unwrap() []error }:
			list := e.Unwrap()
			if len(list) == 0 {
				return err.Error()
			}
			err = list[len(list)-1]
		default:
			return err.Error()
		}
	}
}
