-- +goose Up

-- reads event: stat

-- What is kept of a sent message when its copy is deleted: by what an answer
-- finds its thread, and a late report its recipient.
-- owner: outbound
CREATE TABLE outbound_trace (
  id         {id},                     -- of the message
  account    BIGINT NOT NULL,
  domain     BIGINT NOT NULL,
  reference  BIGINT NOT NULL,          -- hash of its Message-ID
  thread_id  TEXT NOT NULL,
  message_id TEXT NOT NULL,
  recipients {blob} NOT NULL           -- of API mail: 8 bytes for each delivery, in their order, by which an address can be recognised
);
CREATE INDEX outbound_trace_reference ON outbound_trace (account, reference, id);
CREATE INDEX outbound_trace_thread ON outbound_trace (account, thread_id, id) WHERE thread_id <> '';

-- How often something happened in an hour (kept for some months) or a day of
-- UTC. The rows of domain 0 count all domains of an account.
-- owner: stat
CREATE TABLE stat (
  account      BIGINT NOT NULL,
  domain       BIGINT NOT NULL,
  span         BIGINT NOT NULL,        -- how long the period is, in microseconds: an hour or a day
  period       BIGINT NOT NULL,        -- when it begins
  delivered    BIGINT NOT NULL,
  deferred     BIGINT NOT NULL,
  bounced      BIGINT NOT NULL,
  complained   BIGINT NOT NULL,
  suppressed   BIGINT NOT NULL,
  failed       BIGINT NOT NULL,
  cancelled    BIGINT NOT NULL,
  unsubscribed BIGINT NOT NULL,
  inbound      BIGINT NOT NULL,
  PRIMARY KEY (account, domain, span, period)
) {clustered};
CREATE INDEX stat_period ON stat (span, period);

-- The same of what was accepted, which another duty counts.
-- owner: stat
CREATE TABLE stat_accepted (
  account    BIGINT NOT NULL,
  domain     BIGINT NOT NULL,
  span       BIGINT NOT NULL,
  period     BIGINT NOT NULL,
  messages   BIGINT NOT NULL,
  recipients BIGINT NOT NULL,
  PRIMARY KEY (account, domain, span, period)
) {clustered};
CREATE INDEX stat_accepted_period ON stat_accepted (span, period);

-- Up to which position events are counted; one row.
-- owner: stat
CREATE TABLE stat_upto (
  id       {id},
  position BIGINT NOT NULL
);
INSERT INTO stat_upto (id, position) SELECT 1, COALESCE(MAX(position), 0) FROM event WHERE position IS NOT NULL;
