package store

import (
	"context"

	"hob"
)

func (s *DB) CreateHook(ctx context.Context, by hob.Principal, h hob.Hook) (hob.Hook, error) {
	return h, hob.Errorf(hob.Unavailable, "not built yet")
}
func (s *DB) Hooks(ctx context.Context, by hob.Principal, agent hob.AgentID) ([]hob.Hook, error) {
	return nil, nil
}
func (s *DB) UpdateHook(ctx context.Context, by hob.Principal, agent hob.AgentID, id hob.HookID, p hob.HookPatch) (hob.Hook, error) {
	return hob.Hook{}, hob.Errorf(hob.Unavailable, "not built yet")
}
func (s *DB) DeleteHook(ctx context.Context, by hob.Principal, agent hob.AgentID, id hob.HookID) error {
	return hob.Errorf(hob.Unavailable, "not built yet")
}
