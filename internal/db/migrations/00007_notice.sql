-- +goose Up

-- What the sender of a submission asked to be told of a recipient (RFC 3461),
-- and when it is told that the mail is not there yet.
ALTER TABLE delivery ADD COLUMN notify BIGINT NOT NULL DEFAULT 0;  -- NOTIFY as given, and 16 times what we tell of it
ALTER TABLE delivery ADD COLUMN orcpt TEXT NOT NULL DEFAULT '';    -- ORCPT as "rfc822;a@b", decoded
ALTER TABLE delivery ADD COLUMN late_at BIGINT NOT NULL DEFAULT 0; -- the sender is told then that it is late; 0: not, or told
CREATE INDEX delivery_late ON delivery (late_at) WHERE tenure IS NULL AND late_at > 0 AND state IN ('scheduled', 'queued', 'deferred');

ALTER TABLE outbound_message ADD COLUMN ret TEXT NOT NULL DEFAULT '';   -- RET: HDRS, FULL
ALTER TABLE outbound_message ADD COLUMN envid TEXT NOT NULL DEFAULT ''; -- ENVID, decoded

-- What is still to be told to the sender of a submission: written in the
-- commit of what happened, deleted in the commit that files the report.
-- owner: queue
CREATE TABLE notice (
  id         {id},
  message    BIGINT NOT NULL,
  n          BIGINT NOT NULL,
  action     TEXT NOT NULL CHECK (action IN ('failed', 'delayed', 'delivered', 'relayed')),
  recipient  TEXT NOT NULL,
  orcpt      TEXT NOT NULL,
  code       BIGINT NOT NULL,          -- what the host said
  enhanced   TEXT NOT NULL,
  reply      TEXT NOT NULL,
  remote     TEXT NOT NULL,
  next_at    BIGINT NOT NULL,          -- of delayed: the next try
  expires_at BIGINT NOT NULL,          -- and the last
  at         BIGINT NOT NULL,          -- when it happened
  due_at     BIGINT NOT NULL,          -- when to file the report; later than at after a failure to
  UNIQUE (message, n, id)
);
CREATE INDEX notice_due ON notice (due_at);
