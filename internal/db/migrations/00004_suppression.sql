-- +goose Up

-- Addresses that an account's API mail does not go to. An entry of scope 'all'
-- stops every send, one of scope 'unsubscribable' those that offer to
-- unsubscribe; an address may have one of each, and the first reason is kept.
-- owner: suppression
CREATE TABLE suppression (
  id         {id},
  account    BIGINT NOT NULL,
  address    TEXT NOT NULL,            -- folded, for look-ups (address.Key)
  scope      TEXT NOT NULL CHECK (scope IN ('all', 'unsubscribable')),
  reason     TEXT NOT NULL CHECK (reason IN ('bounce', 'complaint', 'unsubscribe', 'manual')),
  message    BIGINT NOT NULL,          -- the outbound_message that led to it; 0 for none
  n          BIGINT NOT NULL,
  diagnostic TEXT NOT NULL,
  simulated  BOOLEAN NOT NULL,         -- of a simulator address: shown, and stops nothing
  created_at BIGINT NOT NULL,
  UNIQUE (account, address, scope)
);
CREATE INDEX suppression_account ON suppression (account, id);
CREATE INDEX suppression_reason ON suppression (account, reason, id);

ALTER TABLE delivery ADD COLUMN offers BOOLEAN NOT NULL DEFAULT FALSE; -- to unsubscribe

-- Complaints that the simulator still has to make.
-- owner: relay
CREATE TABLE simulated_complaint (
  message BIGINT NOT NULL,
  n       BIGINT NOT NULL,
  due_at  BIGINT NOT NULL,
  until   BIGINT NOT NULL,             -- given up after this
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX simulated_complaint_due ON simulated_complaint (due_at);
