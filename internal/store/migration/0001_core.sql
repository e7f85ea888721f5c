-- The first tables. {key} {json} {blob} {int} {serial} {fill} are the dialect's words for a compared text, a JSON text,
-- bytes, a 64-bit integer, a number given by the database and room for updates in place. Times are microseconds since
-- 1970, 0 where there is none. A statement ends with a semicolon at the end of its line.

CREATE TABLE meta (
	name  {key} PRIMARY KEY,
	value TEXT NOT NULL
);

CREATE TABLE workspaces (
	id         {key} PRIMARY KEY,
	name       TEXT NOT NULL,
	created_at {int} NOT NULL
);

CREATE TABLE keys (
	id           {key} PRIMARY KEY,
	workspace_id {key} NOT NULL REFERENCES workspaces (id),
	hash         {blob} NOT NULL UNIQUE,
	name         TEXT NOT NULL,
	prefix       TEXT NOT NULL,
	service      {int} NOT NULL,
	scopes       {json} NOT NULL,
	agent_id     {key} NOT NULL,
	created_by   TEXT NOT NULL,
	created_at   {int} NOT NULL,
	expires_at   {int} NOT NULL,
	revoked_at   {int} NOT NULL
);
CREATE INDEX keys_workspace ON keys (workspace_id, created_at);

-- name_key is the name in lower case, which a list is searched and sorted by.
CREATE TABLE agents (
	id            {key} PRIMARY KEY,
	workspace_id  {key} NOT NULL REFERENCES workspaces (id),
	owner         {key} NOT NULL,
	name          TEXT NOT NULL,
	name_key      {key} NOT NULL,
	model         TEXT NOT NULL,
	system_prompt TEXT,
	settings      {json} NOT NULL,
	created_at    {int} NOT NULL,
	updated_at    {int} NOT NULL
);
CREATE INDEX agents_workspace ON agents (workspace_id, created_at);

-- headers is the sealed JSON object of header values, NULL where there are none.
CREATE TABLE tools (
	id           {key} PRIMARY KEY,
	workspace_id {key} NOT NULL REFERENCES workspaces (id),
	name         {key} NOT NULL,
	description  TEXT NOT NULL,
	type         TEXT NOT NULL,
	input_schema {json} NOT NULL,
	config       {json} NOT NULL,
	headers      {blob},
	is_active    {int} NOT NULL,
	created_at   {int} NOT NULL,
	updated_at   {int} NOT NULL,
	UNIQUE (workspace_id, name)
);

CREATE TABLE assignments (
	n               {serial},
	id              {key} NOT NULL UNIQUE,
	agent_id        {key} NOT NULL REFERENCES agents (id) ON DELETE CASCADE,
	workspace_id    {key} NOT NULL,
	tool_type       TEXT NOT NULL,
	tool_name       {key} NOT NULL,
	tool_id         {key} REFERENCES tools (id) ON DELETE CASCADE,
	config_override {json} NOT NULL,
	created_at      {int} NOT NULL,
	UNIQUE (agent_id, tool_name)
);
CREATE INDEX assignments_tool ON assignments (tool_id);

-- agent_id is '' once the agent was deleted. The index holds all that an agent's row in a list adds up.
CREATE TABLE sessions (
	n                {serial},
	id               {key} NOT NULL,
	workspace_id     {key} NOT NULL,
	uuid             TEXT NOT NULL,
	owner            {key} NOT NULL,
	agent_id         {key} NOT NULL,
	user_id          TEXT NOT NULL,
	session_data     {json} NOT NULL,
	metadata         {json} NOT NULL,
	turns            {int} NOT NULL,
	run_count        {int} NOT NULL,
	first_message    TEXT NOT NULL,
	created_at       {int} NOT NULL,
	updated_at       {int} NOT NULL,
	last_activity_at {int} NOT NULL,
	UNIQUE (workspace_id, id)
) {fill};
CREATE INDEX sessions_agent ON sessions (agent_id, last_activity_at, owner, run_count);

-- One small row per run, written anew with every commit. What belongs to a run is found by its number n, not by its
-- random id: runs that are under way at the same time then lie on the same few pages, so that a commit of many writes
-- few, however many runs are stored. started_by is the kind and id of the principal, also of a service key, which owns
-- nothing. The lease is in no index for the same reason; runs_open holds the unfinished only.
CREATE TABLE runs (
	n            {serial},
	id           {key} NOT NULL UNIQUE,
	workspace_id {key} NOT NULL,
	started_by   {key} NOT NULL,
	agent_id     {key} NOT NULL,
	session_n    {int} NOT NULL,
	turn         {int} NOT NULL,
	status       TEXT NOT NULL,
	epoch        {int} NOT NULL,
	attempt      {int} NOT NULL,
	lease_owner  {key} NOT NULL,
	lease_until  {int} NOT NULL,
	last_seq     {int} NOT NULL,
	cancel_code  TEXT NOT NULL,
	created_at   {int} NOT NULL,
	started_at   {int} NOT NULL,
	completed_at {int} NOT NULL,
	UNIQUE (session_n, turn)
) {fill};
CREATE INDEX runs_open ON runs (completed_at, lease_owner) WHERE completed_at = 0;

CREATE TABLE run_pins (
	digest {key} PRIMARY KEY,
	pin    {json} NOT NULL
);

-- What is written when a run starts and when it ends.
CREATE TABLE run_details (
	run_n       {int} PRIMARY KEY,
	model       TEXT NOT NULL,
	pin         {key} NOT NULL,
	new_session {int} NOT NULL,
	principal   {json} NOT NULL,
	options     {json} NOT NULL,
	code        TEXT NOT NULL,
	error       TEXT NOT NULL,
	content     TEXT NOT NULL,
	steps       {int} NOT NULL,
	token_usage {json} NOT NULL
);

CREATE TABLE run_events (
	run_n {int} NOT NULL,
	seq   {int} NOT NULL,
	type  TEXT NOT NULL,
	ts    {int} NOT NULL,
	data  {json} NOT NULL,
	PRIMARY KEY (run_n, seq)
);

-- chars counts what a message adds to a history. body is NULL for a message that is a role and a text.
CREATE TABLE messages (
	run_n {int} NOT NULL,
	idx   {int} NOT NULL,
	role  TEXT NOT NULL,
	chars {int} NOT NULL,
	text  TEXT NOT NULL,
	body  {json},
	PRIMARY KEY (run_n, idx)
);

CREATE TABLE tool_calls (
	run_n      {int} NOT NULL,
	call_id    {key} NOT NULL,
	step       {int} NOT NULL,
	idx        {int} NOT NULL,
	name       TEXT NOT NULL,
	arguments  {json} NOT NULL,
	status     TEXT NOT NULL,
	recovery   TEXT NOT NULL,
	attempt    {int} NOT NULL,
	result     TEXT NOT NULL,
	is_error   {int} NOT NULL,
	is_unknown {int} NOT NULL,
	started_at {int} NOT NULL,
	ended_at   {int} NOT NULL,
	PRIMARY KEY (run_n, call_id)
);

-- The ledger outlives the runs it tells of. SQLite may give a deleted run's number again, hence the id beside it.
CREATE TABLE usage (
	n                 {serial},
	workspace_id      {key} NOT NULL,
	started_by        {key} NOT NULL,
	agent_id          {key} NOT NULL,
	run_id            {key} NOT NULL,
	run_n             {int} NOT NULL,
	component         TEXT NOT NULL,
	model             TEXT NOT NULL,
	step              {int} NOT NULL,
	prompt_tokens     {int} NOT NULL,
	completion_tokens {int} NOT NULL,
	reasoning_tokens  {int} NOT NULL,
	cached_tokens     {int} NOT NULL,
	total_tokens      {int} NOT NULL,
	estimated         {int} NOT NULL,
	created_at        {int} NOT NULL
);
CREATE INDEX usage_workspace ON usage (workspace_id, created_at);
CREATE INDEX usage_run ON usage (run_n);

CREATE TABLE idempotency (
	scope      {key} NOT NULL,
	key        {key} NOT NULL,
	digest     TEXT NOT NULL,
	run_id     {key} NOT NULL,
	expires_at {int} NOT NULL,
	PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_expiry ON idempotency (expires_at);
