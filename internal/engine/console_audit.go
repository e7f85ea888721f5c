package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"

	"hob"
)

// noteTrial writes an entry of the audit log about a call of the console, even when the time for the call itself is over.
func (e *Engine) noteTrial(ctx context.Context, in Trial, d deed, action, decision string) error {
	text, err := json.Marshal(map[string]any{"agent_id": string(in.Agent), "dry_run": in.DryRun, "ref": d.tool.spec.Ref})
	if err != nil {
		return hob.Wrap("encode an entry of the audit log", err)
	}
	args := d.call.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	sum := sha256.Sum256(args)
	return e.Store.NoteAudit(context.WithoutCancel(ctx), d.call.Principal, hob.AuditEntry{
		Action: action, Kind: "tool_test", Object: d.call.Name, Call: d.call.ID, Digest: hex.EncodeToString(sum[:]), Decision: decision,
		Detail: text,
	})
}

// noteTried notes what came of a call. That it could not be noted makes the call no failure: it was made.
func (e *Engine) noteTried(ctx context.Context, in Trial, d deed, decision string) []string {
	if err := e.noteTrial(ctx, in, d, "tool_test.result", decision); err != nil {
		e.Log.Error("the result of a tool that was tried could not be noted", slog.String("call", string(d.call.ID)), slog.Any("error", err))
		return []string{"the result could not be written to the audit log"}
	}
	return nil
}
