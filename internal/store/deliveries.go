package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"hob"
)

// keepDeliveries is how long a delivery that is done can be looked at.
const keepDeliveries = 7 * 24 * time.Hour

const deliveryColumns = `n, id, workspace_id, agent_id, hook_id, run_id, event, url, body, status, attempts, next_at, error, created_at, delivered_at`

// storedDelivery is a delivery with its number.
type storedDelivery struct {
	hob.Delivery
	n int64
}

func scanDelivery(r row) (storedDelivery, error) {
	var x storedDelivery
	var body string
	var next, created, delivered int64
	err := r.Scan(&x.n, &x.ID, &x.Workspace, &x.Agent, &x.Hook, &x.Run, &x.Event, &x.URL, &body, &x.Status, &x.Attempts, &next, &x.Error,
		&created, &delivered)
	x.Body = json.RawMessage(body)
	x.CreatedAt, x.DeliveredAt = hob.FromMicros(created), hob.FromMicros(delivered)
	if x.Status == hob.DeliveryQueued {
		x.NextAt = hob.FromMicros(next)
	}
	return x, err
}

// queueDelivery writes a delivery of a run's commit. One that is there already, since the run was driven twice up to here,
// is the same: its id says what it tells and whom.
func queueDelivery(ctx context.Context, t *tx, run hob.RunID, m place, d hob.Delivery, now int64) error {
	_, err := t.exec(ctx, `INSERT INTO deliveries (id, workspace_id, agent_id, hook_id, run_id, event, url, body, status, attempts, next_at,
			error, created_at, delivered_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', 0, {now}, '', ?, 0) ON CONFLICT (id) DO NOTHING`,
		d.ID, m.ws, m.agent, string(d.Hook), string(run), d.Event, d.URL, string(object(d.Body)), now)
	return hob.Wrap("queue a delivery", err)
}

// Deliveries lists what was sent or is to be sent to a hook that the principal may see.
func (s *DB) Deliveries(ctx context.Context, by hob.Principal, ag hob.AgentID, id hob.HookID, limit int) ([]hob.Delivery, error) {
	ctx, t := s.lookUp(ctx)
	h, err := s.hook(ctx, t, by, "", ag, id)
	if err != nil {
		return nil, err
	}
	count, _ := window(limit, 0)
	rows, err := many(ctx, t, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries WHERE hook_id = ? ORDER BY n DESC LIMIT ?`,
		string(h.ID), count)
	if err != nil {
		return nil, hob.Wrap("list deliveries", err)
	}
	list := make([]hob.Delivery, len(rows))
	for i, x := range rows {
		list[i] = x.Delivery
	}
	return list, nil
}

// DueDeliveries takes deliveries. Two processes never get the same one, as with Claim.
func (s *DB) DueDeliveries(ctx context.Context, lease time.Duration, limit int) ([]hob.DueDelivery, error) {
	// Most of the time nothing is due, and no writer need be kept busy to find that out.
	_, err := one(ctx, s.read(), scanInt, `SELECT 1 FROM deliveries WHERE status = 'queued' AND next_at <= (SELECT {now}) LIMIT 1`)
	if none(err) {
		return nil, nil
	}
	if err != nil {
		return nil, hob.Wrap("look for due deliveries", err)
	}
	var list []hob.DueDelivery
	err = s.write(ctx, "take due deliveries", func(ctx context.Context, t *tx) error {
		rows, err := many(ctx, t, scanDelivery, `UPDATE deliveries SET attempts = attempts + 1, next_at = {now} + ?
			WHERE n IN (SELECT n FROM deliveries WHERE status = 'queued' AND next_at <= (SELECT {now}) ORDER BY next_at, n LIMIT ? {skip})
			RETURNING `+deliveryColumns, lease.Microseconds(), int64(limit))
		if err != nil || len(rows) == 0 {
			return err
		}
		t.wrote = true
		slices.SortFunc(rows, func(a, b storedDelivery) int { return cmp.Compare(a.n, b.n) })
		list, err = s.withHooks(ctx, t, rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// withHooks adds the hooks that deliveries go to; one that is gone stays empty.
func (s *DB) withHooks(ctx context.Context, t *tx, rows []storedDelivery) ([]hob.DueDelivery, error) {
	ids := make([]string, len(rows))
	for i, x := range rows {
		ids[i] = string(x.Hook)
	}
	in, args := inList(ids)
	hooks, err := many(ctx, t, s.scanHook, `SELECT `+hookColumns+` FROM hooks WHERE id IN `+in, args...)
	if err != nil {
		return nil, err
	}
	list := make([]hob.DueDelivery, len(rows))
	for i, x := range rows {
		list[i].Delivery = x.Delivery
		if at := slices.IndexFunc(hooks, func(h hob.Hook) bool { return h.ID == x.Hook }); at >= 0 {
			list[i].To = hooks[at]
		}
	}
	return list, nil
}

// DeliveryDone notes how a try went. One that is done stays as it is.
func (s *DB) DeliveryDone(ctx context.Context, id string, status hob.DeliveryStatus, failure string, again time.Duration) error {
	var delivered int64
	switch status {
	case hob.DeliveryQueued, hob.DeliveryFailed:
	case hob.DeliveryDelivered:
		delivered = s.now()
	default:
		return hob.Errorf(hob.Invalid, "there is no delivery status %q", status)
	}
	if status != hob.DeliveryQueued {
		again = keepDeliveries
	}
	return s.write(ctx, "note a delivery", func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, `UPDATE deliveries SET status = ?, error = ?, next_at = {now} + ?, delivered_at = ? WHERE id = ? AND status = 'queued'`,
			string(status), failure, again.Microseconds(), delivered, id)
		return err
	})
}

// SweepDeliveries deletes the deliveries that have been done for 7 days and says how many there were.
func (s *DB) SweepDeliveries(ctx context.Context) (total int64, err error) {
	for n := int64(sweepChunk); n == sweepChunk; {
		err = s.write(ctx, "sweep deliveries", func(ctx context.Context, t *tx) (err error) {
			n, err = t.exec(ctx, `DELETE FROM deliveries WHERE n IN
				(SELECT n FROM deliveries WHERE status IN ('delivered', 'failed') AND next_at <= (SELECT {now}) LIMIT ?)`, int64(sweepChunk))
			return err
		})
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}
