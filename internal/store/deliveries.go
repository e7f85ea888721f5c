package store

import (
	"context"
	"time"

	"hob"
)

func (s *DB) Deliveries(ctx context.Context, by hob.Principal, agent hob.AgentID, id hob.HookID, limit int) ([]hob.Delivery, error) {
	return nil, nil
}
func (s *DB) DueDeliveries(ctx context.Context, lease time.Duration, limit int) ([]hob.DueDelivery, error) {
	return nil, nil
}
func (s *DB) DeliveryDone(ctx context.Context, id string, status hob.DeliveryStatus, failure string, again time.Duration) error {
	return nil
}
