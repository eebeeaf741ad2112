-- +goose Up

-- Failed logins, counted over all nodes: by credential (network ''), by network
-- (credential ''), and by credential and network where the credential has
-- signed in from that network. A row says when its failures are forgotten; each
-- failure moves that time on.
-- owner: ratelimit
CREATE TABLE login_failure (
  credential {text} NOT NULL,          -- "mailbox:ID", "apps:ID", "user:ID", …
  network    {text} NOT NULL,          -- the client's: /32, /64 or /48
  clear_at   BIGINT NOT NULL,
  PRIMARY KEY (credential, network)
) {clustered};
CREATE INDEX login_failure_clear ON login_failure (clear_at);

-- The networks that a credential has signed in from lately. There, only its own
-- failures count against it.
-- owner: ratelimit
CREATE TABLE login_network (
  credential {text} NOT NULL,
  network    {text} NOT NULL,
  seen_at    BIGINT NOT NULL,
  PRIMARY KEY (credential, network)
) {clustered};
CREATE INDEX login_network_seen ON login_network (seen_at);

-- Wrong codes of the second factor in a session; at the limit the session ends.
ALTER TABLE dashboard_session ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;
