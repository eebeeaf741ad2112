-- +goose Up

-- Who signed in to a mailbox, or tried to. What repeats within an hour is one
-- row; only the newest are kept.
-- owner: mailbox
CREATE TABLE sign_in (
  id           {id},
  mailbox      BIGINT NOT NULL,
  protocol     TEXT NOT NULL,
  address      TEXT NOT NULL,          -- of the client
  result       TEXT NOT NULL,
  failed       BIGINT NOT NULL,        -- 0 for a result of ok, else 1
  app_password TEXT NOT NULL,          -- its name; '' for the mailbox's own
  times        BIGINT NOT NULL,
  first_at     BIGINT NOT NULL,
  last_at      BIGINT NOT NULL
);
CREATE INDEX sign_in_mailbox ON sign_in (mailbox, id);
CREATE INDEX sign_in_newest ON sign_in (mailbox, failed, id);
CREATE INDEX sign_in_last ON sign_in (last_at);
