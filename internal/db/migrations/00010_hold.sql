-- +goose Up

-- What an operator holds back, also of mail that is still to come. Deliveries
-- that are held for it carry its id.
-- owner: queue
CREATE TABLE queue_hold (
  id         {id},
  kind       TEXT NOT NULL CHECK (kind IN ('destination', 'account')),
  target     TEXT NOT NULL,            -- the destination, or the account's id
  reason     TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (kind, target)
);

-- Destinations that an operator wants tried now: nodes that have put them off
-- begin again. Rows live an hour.
-- owner: queue
CREATE TABLE queue_nudge (
  destination TEXT NOT NULL PRIMARY KEY,
  at          BIGINT NOT NULL
) {clustered};
CREATE INDEX queue_nudge_at ON queue_nudge (at);

-- A held delivery is in the hand of nobody: its tenure is 0, so that no index
-- of what waits has it. One that a node had in hand is marked, and its tenure
-- becomes 0 when the node lets go.
ALTER TABLE delivery ADD COLUMN hold BIGINT NOT NULL DEFAULT 0;    -- the queue_hold it is held for; 1: for itself; 0: not
ALTER TABLE delivery ADD COLUMN held_at BIGINT NOT NULL DEFAULT 0; -- since when, while it is held
CREATE INDEX delivery_held ON delivery (destination, message, n) WHERE tenure = 0 AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_held_account ON delivery (account, message, n) WHERE tenure = 0 AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_hold ON delivery (hold, message, n) WHERE tenure = 0 AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_marked ON delivery (tenure, message, n) WHERE tenure > 0 AND hold > 0;

-- For walking through what waits, in whole, to a destination, or of an account.
DROP INDEX delivery_destination;
CREATE INDEX delivery_destination ON delivery (destination, due_at, message, n) WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_account ON delivery (account, message, n) WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred');
