-- +goose Up

-- An address belongs to whoever has proven it: by a link that came by mail.
ALTER TABLE dashboard_user ADD COLUMN address TEXT NOT NULL DEFAULT '';        -- as it was given, to write to; '': as email has it
ALTER TABLE dashboard_user ADD COLUMN verified_at BIGINT NOT NULL DEFAULT 0;   -- when the address was proven; 0: not yet

ALTER TABLE dashboard_ticket ADD COLUMN address TEXT NOT NULL DEFAULT '';      -- as it was given
ALTER TABLE dashboard_ticket ADD COLUMN proves BIGINT NOT NULL DEFAULT 0;      -- 1: nobody but the holder of the address has seen the link
ALTER TABLE dashboard_ticket ADD COLUMN confirms BIGINT NOT NULL DEFAULT 0;    -- 1: a reset that sets no password, but confirms the address
ALTER TABLE dashboard_ticket ADD COLUMN inviter BIGINT NOT NULL DEFAULT 0;     -- who invites; 0: an operator at the command line
ALTER TABLE dashboard_ticket ADD COLUMN inviter_of BIGINT NOT NULL DEFAULT 0;  -- the account in which the inviter may do so
CREATE INDEX dashboard_ticket_inviter ON dashboard_ticket (inviter, inviter_of);

-- How much mail of the service was sent to an address, or at somebody's wish, in
-- a window of time.
-- owner: user
CREATE TABLE service_mail (
  key       {text} NOT NULL,           -- the kind of mail, and to whom or by whom
  ends_at   BIGINT NOT NULL,           -- of the window
  sent      BIGINT NOT NULL,
  PRIMARY KEY (key, ends_at)
) {clustered};
CREATE INDEX service_mail_ends ON service_mail (ends_at);
