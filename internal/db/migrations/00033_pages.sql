-- +goose Up

-- What arrived for an account, newest first, whatever the mailbox.
CREATE INDEX message_account ON message (account, id) WHERE account <> 0;

-- A link that gives a phone the profile of a mailbox, with an app password that
-- is made when it is followed: once.
-- owner: mailbox
CREATE TABLE profile_link (
  id         {id},
  mailbox    BIGINT NOT NULL,
  generation BIGINT NOT NULL,          -- of the mailbox's log-ins: a new password ends it
  name       TEXT NOT NULL,            -- of the device
  hash       {blob} NOT NULL UNIQUE,   -- of the token
  expires_at BIGINT NOT NULL,
  spent_at   BIGINT NOT NULL           -- 0: not yet
);
CREATE INDEX profile_link_mailbox ON profile_link (mailbox, id);
CREATE INDEX profile_link_expires ON profile_link (expires_at);
