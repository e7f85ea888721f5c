-- People in charge: hooks, approvals, what is told to hooks beside the runs, and the audit log.

-- matcher is '' where a hook is about every tool. sealed is the JSON object of header values and the signing secret, NULL
-- where there are none.
CREATE TABLE hooks (
	n            {serial},
	id           {key} NOT NULL UNIQUE,
	agent_id     {key} NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
	workspace_id {key} NOT NULL,
	event        {key} NOT NULL,
	type         {key} NOT NULL,
	matcher      TEXT NOT NULL,
	config       {json} NOT NULL,
	sealed       {blob},
	enabled      {int} NOT NULL,
	position     {int} NOT NULL,
	created_by   {key} NOT NULL,
	created_at   {int} NOT NULL
);
CREATE INDEX hooks_agent ON hooks (agent_id, position, n);

-- How many enabled hooks an agent has, so that the runs of those without need not look.
ALTER TABLE agents ADD COLUMN hooks {int} NOT NULL DEFAULT 0;

-- owner and requested_by are of the run's principal, approvers a JSON list of names. settled is 1 once the run's log tells
-- what became of it. They go with their runs; the audit log keeps what was decided.
CREATE TABLE approvals (
	n            {serial},
	id           {key} NOT NULL UNIQUE,
	workspace_id {key} NOT NULL,
	run_n        {int} NOT NULL,
	run_id       {key} NOT NULL,
	agent_id     {key} NOT NULL,
	owner        {key} NOT NULL,
	requested_by {key} NOT NULL,
	approvers    {json} NOT NULL,
	four_eyes    {int} NOT NULL,
	hook_id      {key} NOT NULL,
	event        {key} NOT NULL,
	call_id      {key} NOT NULL,
	tool_name    TEXT NOT NULL,
	input        {json} NOT NULL,
	output       TEXT NOT NULL,
	preview      {json},
	digest       TEXT NOT NULL,
	message      TEXT NOT NULL,
	status       {key} NOT NULL,
	reason       TEXT NOT NULL,
	modified     {json},
	decided_by   {key} NOT NULL,
	created_at   {int} NOT NULL,
	expires_at   {int} NOT NULL,
	decided_at   {int} NOT NULL,
	settled      {int} NOT NULL
);
CREATE INDEX approvals_run ON approvals (run_n, n);
CREATE INDEX approvals_inbox ON approvals (workspace_id, status, n);

-- wake_at is when a run that waits for approvals is taken up at the latest, 0 where it may wait for ever. woken is 1 from
-- the moment it rests until it is claimed: that claim is no new attempt. Runs that rest have an index of their own, so that
-- whoever looks for runs to drive does not come by thousands of them.
ALTER TABLE runs ADD COLUMN wake_at {int} NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN woken {int} NOT NULL DEFAULT 0;
DROP INDEX runs_open;
CREATE INDEX runs_open ON runs (completed_at, lease_owner) WHERE completed_at = 0 AND status <> 'awaiting_approval';
CREATE INDEX runs_resting ON runs (wake_at) WHERE status = 'awaiting_approval';

-- next_at is when a queued delivery is due, or due again should the process that sends it end; of one that is done, when it
-- is deleted.
CREATE TABLE deliveries (
	n            {serial},
	id           {key} NOT NULL UNIQUE,
	workspace_id {key} NOT NULL,
	agent_id     {key} NOT NULL,
	hook_id      {key} NOT NULL,
	run_id       {key} NOT NULL,
	event        {key} NOT NULL,
	url          TEXT NOT NULL,
	body         {json} NOT NULL,
	status       {key} NOT NULL,
	attempts     {int} NOT NULL,
	next_at      {int} NOT NULL,
	error        TEXT NOT NULL,
	created_at   {int} NOT NULL,
	delivered_at {int} NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (status, next_at);
CREATE INDEX deliveries_hook ON deliveries (hook_id, n);

-- place is the entry's in the chain of its workspace, 0 until it is linked; prev and hash are hex. Entries are only added,
-- and outlive what they tell of. Of a run's entries the first and the last have an index; the others are between them.
CREATE TABLE audit (
	n            {serial},
	workspace_id {key} NOT NULL,
	place        {int} NOT NULL,
	at           {int} NOT NULL,
	actor        {key} NOT NULL,
	action       {key} NOT NULL,
	kind         {key} NOT NULL,
	object       {key} NOT NULL,
	run_id       {key} NOT NULL,
	call_id      {key} NOT NULL,
	digest       TEXT NOT NULL,
	before       TEXT NOT NULL DEFAULT '',
	after        TEXT NOT NULL DEFAULT '',
	decision     TEXT NOT NULL,
	rule         TEXT NOT NULL DEFAULT '',
	detail       {json} NOT NULL,
	request_id   TEXT NOT NULL DEFAULT '',
	address      TEXT NOT NULL DEFAULT '',
	prev         TEXT NOT NULL,
	hash         TEXT NOT NULL
);
CREATE UNIQUE INDEX audit_place ON audit (workspace_id, place) WHERE place > 0;
CREATE INDEX audit_run ON audit (run_id) WHERE action IN ('run.start', 'run.end');
CREATE INDEX audit_loose ON audit (n) WHERE place = 0;
