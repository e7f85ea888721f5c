-- Settings, model providers of workspaces, what models were found to do, summaries of conversations, and what the ledger
-- needs to tell runs, tool calls and money apart.

-- value is '' where the setting is a secret; sealed is NULL where it is none.
CREATE TABLE settings (
	workspace_id {key} NOT NULL REFERENCES workspaces (id),
	key          {key} NOT NULL,
	value        TEXT NOT NULL,
	sealed       {blob},
	updated_at   {int} NOT NULL,
	PRIMARY KEY (workspace_id, key)
);

-- sealed is the key, NULL where the provider is reached by its address alone.
CREATE TABLE provider_keys (
	id                {key} PRIMARY KEY,
	workspace_id      {key} NOT NULL REFERENCES workspaces (id),
	provider          {key} NOT NULL,
	sealed            {blob},
	base_url          TEXT NOT NULL,
	is_valid          {int} NOT NULL,
	last_validated_at {int} NOT NULL,
	created_at        {int} NOT NULL,
	updated_at        {int} NOT NULL,
	UNIQUE (workspace_id, provider)
);

CREATE TABLE model_profiles (
	endpoint  {key} NOT NULL,
	model     {key} NOT NULL,
	facts     {json} NOT NULL,
	tested_at {int} NOT NULL,
	PRIMARY KEY (endpoint, model)
);

-- Summaries are added, never changed: the one of a session that reaches furthest counts. They go with their session.
CREATE TABLE summaries (
	n          {serial},
	session_n  {int} NOT NULL,
	turn       {int} NOT NULL,
	idx        {int} NOT NULL,
	text       TEXT NOT NULL,
	created_at {int} NOT NULL
);
CREATE INDEX summaries_session ON summaries (session_n, turn, idx, n);

-- cost is in billionths of a US dollar. What was written before it was kept has no price, hence the default of unpriced.
ALTER TABLE usage ADD COLUMN action {key} NOT NULL DEFAULT 'llm_call';
ALTER TABLE usage ADD COLUMN quantity {int} NOT NULL DEFAULT 1;
ALTER TABLE usage ADD COLUMN cost {int} NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN unpriced {int} NOT NULL DEFAULT 1;
CREATE INDEX usage_agent ON usage (workspace_id, agent_id, created_at);
