package agentsql

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// trip is several statements sent in one go, to save the ways in between. All
// go by the extended protocol, which takes exactly one statement at a time.
// (Without arguments pgx's own Exec would use the simple protocol, which takes
// any number.)
type trip struct {
	p *pgconn.Pipeline
}

// send starts a trip. Within a group a failure skips the rest; groups do not
// depend on each other.
func send(ctx context.Context, conn *pgx.Conn, groups ...[]string) (trip, error) {
	t := trip{conn.PgConn().StartPipeline(ctx)}
	for _, group := range groups {
		for _, sql := range group {
			t.p.SendQueryParams(sql, nil, nil, nil, nil)
		}
		t.p.SendPipelineSync()
	}
	if err := t.p.Flush(); err != nil {
		return t, fmt.Errorf("send statements: %w", err)
	}
	return t, nil
}

// next returns the result of the next statement.
func (t trip) next() (*pgconn.ResultReader, error) {
	for {
		result, err := t.p.GetResults()
		if err != nil {
			return nil, err
		}
		switch r := result.(type) {
		case *pgconn.ResultReader:
			return r, nil
		case *pgconn.PipelineSync:
		default:
			return nil, errors.New("the server sent fewer results than statements")
		}
	}
}

// skip reads past the result of the next statement.
func (t trip) skip() error {
	r, err := t.next()
	if err != nil {
		return err
	}
	_, err = r.Close()
	return err
}

// row returns the one row of the next statement.
func (t trip) row() ([]string, error) {
	r, err := t.next()
	if err != nil {
		return nil, err
	}
	var row []string
	for r.NextRow() {
		row = row[:0]
		for _, v := range r.Values() {
			row = append(row, string(v))
		}
	}
	if _, err := r.Close(); err != nil {
		return nil, err
	}
	if row == nil {
		return nil, errors.New("the server sent no row")
	}
	return row, nil
}

// end reads what is left and reports whether the session is fit for further
// use: the server's refusal of a statement does not harm it.
func (t trip) end() error {
	if err := t.p.Close(); sqlState(err) == "" {
		return err
	}
	return nil
}
