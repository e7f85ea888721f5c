package hob

// AuditAction is something that the audit log tells of.
type AuditAction struct {
	Name   string // as in AuditEntry.Action
	Kind   string // of its object
	Object string // what AuditEntry.Object holds
	Tells  string
}

// The actions that more than one package notes.
const (
	ActRefused  = "request.refused"
	ActBackup   = "backup.create"
	ActRestored = "backup.restore"
	ActMigrated = "store.migrate"
	ActOverride = "role.override"
)

// What AuditEntry.Decision says of a tool call's result and of other things that may have been refused.
const (
	AuditOK      = "ok"
	AuditError   = "error"   // a result that says what went wrong
	AuditUnknown = "unknown" // whether it took effect is not known
	AuditRefused = "refused" // it was not carried out
)

// AuditActions lists every action of the audit log, by what they are about.
func AuditActions() []AuditAction {
	return []AuditAction{
		{"agent.create", "agent", "its id", ""},
		{"agent.update", "agent", "its id", ""},
		{"agent.delete", "agent", "its id", "its hooks and assignments go with it"},
		{"tool.create", "tool", "its id", ""},
		{"tool.update", "tool", "its id", ""},
		{"tool.restore", "tool", "its id", "an earlier version, which the detail names, is written anew"},
		{"tool.delete", "tool", "its id", "its assignments go with it"},
		{"builtin.change", "builtin", "its name", "what the workspace changed of a builtin tool"},
		{"assignment.create", "assignment", "its id", "the detail names agent and tool"},
		{"assignment.update", "assignment", "its id", "the detail names agent and tool"},
		{"assignment.delete", "assignment", "its id", "the detail names agent and tool"},
		{"hook.create", "hook", "its id", "the detail names the agent"},
		{"hook.update", "hook", "its id", "the detail names the agent"},
		{"hook.delete", "hook", "its id", "the detail names the agent"},
		{"key.create", "key", "its id", "the detail has its name, prefix, scopes and agent"},
		{"key.revoke", "key", "its id", ""},
		{"setting.change", "setting", "its key", "one entry for each setting; of a secret the digests say only whether it is set"},
		{"provider_key.put", "provider_key", "the provider", "the digests say whether there is a key, not which"},
		{"provider_key.delete", "provider_key", "the provider", "one that does not open is deleted when keys are listed"},
		{"model_profile.put", "model_profile", "the model", "the detail has the endpoint"},
		{"model_profile.delete", "model_profile", "the model", "the detail has the endpoint"},
		{"session.create", "session", "its id", "a session that a run makes is told by run.start alone"},
		{"session.repair", "session", "its id", "stored messages were mended; the detail has how many faults"},
		{"session.delete", "session", "its id", "its runs go with it; the detail has how many"},
		{"bucket.create", "bucket", "its id", ""},
		{"bucket.update", "bucket", "its id", ""},
		{"bucket.own", "bucket", "its id", "its objects are each their owner's alone from now on"},
		{"bucket.empty", "bucket", "its id", "the detail has how many objects; a large bucket is emptied in parts"},
		{"bucket.delete", "bucket", "its id", ""},
		{"file.put", "file", "bucket/name", "the digest is that of the bytes"},
		{"file.move", "file", "bucket/name", "where it was; the detail has where it went"},
		{"file.copy", "file", "bucket/name", "of the copy; the detail has of what"},
		{"file.sign", "file", "bucket/name", "a link that opens it without a key; the detail has for how long. Links to several share an entry: its object is the bucket"},
		{"file.delete", "file", "bucket/name", ""},
		{"run.start", "run", "its id", "the detail names agent and session"},
		{"run.end", "run", "its id", "the decision is its status, the rule its code"},
		{"run.cancel", "run", "its id", "somebody asked for it; the rule is the code"},
		{"run.release", "run", "its id", "it was held by a restore and may go on"},
		{"tool_call.intent", "tool_call", "the tool", "before it is carried out; the digest is that of the arguments, the detail has how it recovers"},
		{"tool_call.result", "tool_call", "the tool", "the decision is ok, error, unknown or refused; what was refused was never carried out"},
		{"tool_test.intent", "tool_test", "the tool", "a call of the test console, before it is carried out; the digest is that of the arguments, the detail has agent, tool reference and whether it is a dry run, which has no result"},
		{"tool_test.result", "tool_test", "the tool", "the decision is ok, error, unknown or refused; what was refused was never carried out"},
		{"approval.request", "approval", "its id", "the rule is the hook that asks, the digest that of the arguments"},
		{"approval.decide", "approval", "its id", "by whom, approved or denied; after_digest is that of other arguments than those asked for"},
		{"approval.expire", "approval", "its id", ""},
		{"approval.cancel", "approval", "its id", "the run ended before it was decided"},
		{"hook.fail", "hook", "its id", "it came to no decision; the decision is what counts instead"},
		{"hook.block", "hook", "its id", "it refused something; the detail has event and tool. Rules of an assignment have no id"},
		{"hook.modify", "hook", "its id", "it changed arguments, a result or an answer; the detail has event and tool"},
		{ActRefused, "request", "method and path pattern", "403, or a key that is known but over; the detail has how many more there were since the last entry"},
		{ActBackup, "backup", "the folder or file", "made while or before the store is read"},
		{ActRestored, "backup", "the folder or file", "the first entry behind those that were restored"},
		{ActMigrated, "store", "where it was", "the first entry behind those that were brought along"},
		{"store.schema", "store", "the schema's version", "a newer program brought it up to date; the detail has the version before"},
		{ActOverride, "role", "the database", "an operator let a powerful role be used all the same"},
	}
}
