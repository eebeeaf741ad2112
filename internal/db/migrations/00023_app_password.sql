-- +goose Up

-- Passwords of single applications, beside the mailbox's own. They are random,
-- so a plain hash finds them.
-- owner: mailbox
CREATE TABLE app_password (
  id           {id},
  mailbox      BIGINT NOT NULL,
  name         TEXT NOT NULL,
  protocols    TEXT NOT NULL,          -- imap, smtp; separated by blanks
  hash         {blob} NOT NULL UNIQUE,
  created_at   BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL         -- give or take an hour; 0 for never
);
CREATE INDEX app_password_mailbox ON app_password (mailbox, id);
