package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"hob"
)

// Address names a database without its user and password.
func (c Config) Address() string {
	if !c.postgres() {
		return c.path()
	}
	cfg, err := pgx.ParseConfig(c.DSN)
	if err != nil {
		return "Postgres"
	}
	host := cfg.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("postgres://%s:%d/%s", host, cfg.Port, cfg.Database)
}

// SetMoved marks a database as moved to another, so that no store opens it any more; "" takes the mark away. It gives what
// the mark was before.
func SetMoved(ctx context.Context, c Config, to string) (before string, err error) {
	l, err := c.link(ctx, true)
	if err != nil {
		return "", fmt.Errorf("mark the database as moved: %w", err)
	}
	defer func() {
		if err = errors.Join(err, l.close()); err != nil {
			before, err = "", fmt.Errorf("mark the database as moved: %w", err)
		}
	}()
	if before, err = l.movedTo(ctx); err != nil {
		return "", err
	}
	if to == "" {
		_, err = l.exec(ctx, `DELETE FROM meta WHERE name = '`+metaMoved+`'`)
		return before, err
	}
	_, err = l.exec(ctx, `INSERT INTO meta (name, value) VALUES ('`+metaMoved+`', ?)
		ON CONFLICT (name) DO UPDATE SET value = excluded.value`, to)
	return before, err
}

// MovedTo is where a database was moved to, "" where it was not.
func (d *Dump) MovedTo(ctx context.Context) (string, error) { return d.link.movedTo(ctx) }

func (t *tx) movedTo(ctx context.Context) (string, error) {
	to, err := one(ctx, t, scanText, `SELECT value FROM meta WHERE name = '`+metaMoved+`'`)
	if none(err) {
		return "", nil
	}
	return to, err
}

// checkMoved refuses a database whose content lives on elsewhere: two that drive the same runs would do everything twice.
func (s *DB) checkMoved(ctx context.Context) error {
	to, err := s.read().movedTo(ctx)
	if err != nil {
		return fmt.Errorf("look where the database was moved to: %w", err)
	}
	if to == "" {
		return nil
	}
	return hob.Errorf(hob.Conflict, "this database was moved to %s by hob migrate; set HOB_DATABASE_URL to it. What is here is "+
		"as it was then; to use it again and give up what was done there: hob migrate --reopen", to)
}
