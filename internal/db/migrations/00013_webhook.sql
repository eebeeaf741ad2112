-- +goose Up

-- reads event: webhook
-- reads tenure: webhook

-- Where the events of an account are sent to. One that was deleted is shown to
-- nobody, and stays until its deliveries are gone.
-- owner: webhook
CREATE TABLE webhook (
  id          {id},
  account     BIGINT NOT NULL REFERENCES account (id),
  url         TEXT NOT NULL,
  description TEXT NOT NULL,
  kinds       TEXT NOT NULL,           -- ' bounce complaint ', or ' all '
  domains     TEXT NOT NULL,           -- ids ' 1 2 ' that events must be about; '' with '' below for any
  mailboxes   TEXT NOT NULL,           -- the same
  status      TEXT NOT NULL CHECK (status IN ('enabled', 'disabled', 'deleted')),
  reason      TEXT NOT NULL,           -- why it is disabled: manual, gone, failing; '' while it is not
  status_at   BIGINT NOT NULL,
  secrets     {blob} NOT NULL,         -- sealed JSON: the secret, and older ones that still sign
  old_until   BIGINT NOT NULL,         -- until when the last of these signs; 0 for none
  revision    BIGINT NOT NULL,         -- rises with every change
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL
);
CREATE INDEX webhook_account ON webhook (account, id) WHERE status IN ('enabled', 'disabled');
CREATE INDEX webhook_enabled ON webhook (account) WHERE status = 'enabled';
CREATE INDEX webhook_deleted ON webhook (id) WHERE status = 'deleted';

-- What is on its way to one webhook: one node at a time works there.
-- owner: webhook
CREATE TABLE webhook_lane (
  webhook       {id},
  tenure        BIGINT,                -- which node works here
  due_at        BIGINT,                -- when a node shall come, while none does; NULL: nothing waits
  arrivals      BIGINT NOT NULL,       -- rises with every batch of deliveries: a node leaves only if it has seen all
  life          BIGINT NOT NULL,       -- rises when what is below begins anew
  failing_since BIGINT NOT NULL,       -- the first failure since the last success; 0 for none
  level         BIGINT NOT NULL,       -- how often in a row a single try after a rest failed
  rest_until    BIGINT NOT NULL        -- no attempt before this
) {hot};
CREATE INDEX webhook_lane_due ON webhook_lane (due_at) WHERE tenure IS NULL AND due_at IS NOT NULL;
CREATE INDEX webhook_lane_tenure ON webhook_lane (tenure, webhook) WHERE tenure IS NOT NULL;

-- One event on its way to one webhook. The id is the event's.
-- owner: webhook
CREATE TABLE webhook_delivery (
  webhook    BIGINT NOT NULL,
  id         BIGINT NOT NULL,
  kind       TEXT NOT NULL,
  state      TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
  attempts   BIGINT NOT NULL,
  tries      BIGINT NOT NULL,          -- the place in the schedule: attempts since it was last begun anew
  due_at     BIGINT NOT NULL,
  code       BIGINT NOT NULL,          -- HTTP status of the last attempt; 0 for none
  trouble    TEXT NOT NULL,            -- of the last attempt; '' for none
  body       TEXT NOT NULL,            -- of a test; an event's body is made of its row
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (webhook, id)
) {clustered} {hot};
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook, due_at, id) WHERE state = 'pending';
CREATE INDEX webhook_delivery_state ON webhook_delivery (webhook, state, id);

-- owner: webhook
CREATE TABLE webhook_attempt (
  webhook    BIGINT NOT NULL,
  id         BIGINT NOT NULL,
  n          BIGINT NOT NULL,          -- 1…
  started_at BIGINT NOT NULL,
  micros     BIGINT NOT NULL,          -- how long it took
  headers    TEXT NOT NULL,            -- JSON: what was sent
  code       BIGINT NOT NULL,          -- HTTP status; 0 for no answer
  trouble    TEXT NOT NULL,            -- '' for none
  words      TEXT NOT NULL,            -- the trouble, for people
  response   TEXT NOT NULL,            -- the beginning of the answer's body
  next_at    BIGINT NOT NULL,          -- when it is tried again; 0 for never
  PRIMARY KEY (webhook, id, n)
) {clustered};

-- Up to which event deliveries were made.
-- owner: webhook
CREATE TABLE webhook_mark (
  id       {id},                       -- 1
  position BIGINT NOT NULL
) {hot};
INSERT INTO webhook_mark (id, position) SELECT 1, COALESCE(MAX(position), 0) FROM event WHERE position IS NOT NULL;
