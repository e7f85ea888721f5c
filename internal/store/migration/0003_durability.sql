-- What recovery needs to tell runs apart, and the answers of requests that came with an idempotency key.

-- stalls counts the claims since the run last got on: one that ends every process that takes it up is parked. held is 1
-- for what a restore brought back unfinished: nobody drives it until an operator lets it go. read_until is until when readers
-- at other processes than the driver's are known to follow the run.
ALTER TABLE runs ADD COLUMN stalls {int} NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN held {int} NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN read_until {int} NOT NULL DEFAULT 0;

-- sealed is the answer's body: it may hold a secret that is shown once.
CREATE TABLE answers (
	scope      {key} NOT NULL,
	key        {key} NOT NULL,
	digest     TEXT NOT NULL,
	status     {int} NOT NULL,
	sealed     {blob} NOT NULL,
	expires_at {int} NOT NULL,
	PRIMARY KEY (scope, key)
);
CREATE INDEX answers_expiry ON answers (expires_at);
