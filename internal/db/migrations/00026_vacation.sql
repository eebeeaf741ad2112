-- +goose Up

-- Where the mail of a mailbox goes as well, one address to a line, and whether
-- it is kept here then; and whether its vacation may answer now.
ALTER TABLE mailbox ADD COLUMN forward_to TEXT NOT NULL DEFAULT '';
ALTER TABLE mailbox ADD COLUMN keep_copy BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE mailbox ADD COLUMN answers BOOLEAN NOT NULL DEFAULT FALSE;

-- What a mailbox answers while its owner is away (RFC 3834).
-- owner: mailbox
CREATE TABLE vacation (
  mailbox    {id},
  enabled    BOOLEAN NOT NULL,
  starts_at  BIGINT NOT NULL,          -- 0: at once
  ends_at    BIGINT NOT NULL,          -- 0: never
  subject    TEXT NOT NULL,            -- '': that of the message, with a word before it
  body       TEXT NOT NULL,
  days       BIGINT NOT NULL,          -- after how many a sender is answered again
  round      BIGINT NOT NULL,          -- another one when all are to be answered anew
  updated_at BIGINT NOT NULL
);

-- Who was answered, and when last.
-- owner: mailbox
CREATE TABLE vacation_answer (
  mailbox BIGINT NOT NULL,
  sender  TEXT NOT NULL,               -- folded (address.Key)
  round   BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (mailbox, sender)
) {clustered};
CREATE INDEX vacation_answer_at ON vacation_answer (at);

-- Whether its owner knows that a mailbox is nearly full: 0 it is not, 1 it is
-- and has to be told, 2 it was told.
ALTER TABLE mailbox_usage ADD COLUMN nearly_full BIGINT NOT NULL DEFAULT 0;
CREATE INDEX mailbox_usage_nearly_full ON mailbox_usage (mailbox) WHERE nearly_full = 1;
