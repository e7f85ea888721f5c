-- Tools: what agents are offered, versions, what a workspace changed of builtin ones, files, and what of a call is billed.

-- tool_ids is NULL where an agent's assignments decide.
ALTER TABLE agents ADD COLUMN tool_ids {json};

ALTER TABLE tools ADD COLUMN version {int} NOT NULL DEFAULT 1;

-- A tool after each change, as its row was; headers is sealed as there.
CREATE TABLE tool_versions (
	tool_id      {key} NOT NULL REFERENCES tools (id) ON DELETE CASCADE,
	version      {int} NOT NULL,
	name         TEXT NOT NULL,
	description  TEXT NOT NULL,
	input_schema {json} NOT NULL,
	config       {json} NOT NULL,
	headers      {blob},
	is_active    {int} NOT NULL,
	changed_by   TEXT NOT NULL,
	changed_at   {int} NOT NULL,
	PRIMARY KEY (tool_id, version)
);

INSERT INTO tool_versions (tool_id, version, name, description, input_schema, config, headers, is_active, changed_by, changed_at)
	SELECT id, 1, name, description, input_schema, config, headers, is_active, 'system:', updated_at FROM tools;

CREATE TABLE builtin_tools (
	workspace_id {key} NOT NULL REFERENCES workspaces (id),
	name         {key} NOT NULL,
	is_active    {int} NOT NULL,
	suffix       TEXT NOT NULL,
	config       {json} NOT NULL,
	version      {int} NOT NULL,
	updated_at   {int} NOT NULL,
	PRIMARY KEY (workspace_id, name)
);

-- max_size is -1 and types is '' where nothing bounds them. In one that is owned each object is its owner's alone.
CREATE TABLE buckets (
	workspace_id {key} NOT NULL REFERENCES workspaces (id),
	id           {key} NOT NULL,
	name         TEXT NOT NULL,
	owner        {key} NOT NULL,
	public       {int} NOT NULL,
	owned        {int} NOT NULL,
	max_size     {int} NOT NULL,
	types        {json} NOT NULL,
	created_at   {int} NOT NULL,
	updated_at   {int} NOT NULL,
	PRIMARY KEY (workspace_id, id)
);

CREATE TABLE objects (
	id           {key} PRIMARY KEY,
	workspace_id {key} NOT NULL,
	bucket_id    {key} NOT NULL,
	name         {key} NOT NULL,
	owner        {key} NOT NULL,
	blob         {key} NOT NULL,
	size         {int} NOT NULL,
	type         TEXT NOT NULL,
	digest       TEXT NOT NULL,
	created_at   {int} NOT NULL,
	updated_at   {int} NOT NULL,
	accessed_at  {int} NOT NULL,
	UNIQUE (workspace_id, bucket_id, name),
	FOREIGN KEY (workspace_id, bucket_id) REFERENCES buckets (workspace_id, id)
);
CREATE INDEX objects_blob ON objects (blob);

-- What a call wrote under its key, so that a second try finds it: the object as it was then.
CREATE TABLE object_writes (
	workspace_id {key} NOT NULL,
	key          {key} NOT NULL,
	object       {json} NOT NULL,
	expires_at   {int} NOT NULL,
	PRIMARY KEY (workspace_id, key)
);
CREATE INDEX object_writes_expiry ON object_writes (expires_at);

-- action is '' for a call that has none of its own; free is 1 for one that is not counted.
ALTER TABLE tool_calls ADD COLUMN action TEXT NOT NULL DEFAULT '';
ALTER TABLE tool_calls ADD COLUMN free {int} NOT NULL DEFAULT 0;

-- The tool that an action is of, '' for model calls and runs.
ALTER TABLE usage ADD COLUMN tool TEXT NOT NULL DEFAULT '';
