-- +goose Up

-- Connections that are signed in to mailboxes now. Those of a tenure that has
-- ended are over, and count for nothing until they are deleted.
-- owner: mailbox
-- reads tenure: mailbox
CREATE TABLE mailbox_session (
  id           {id},
  mailbox      BIGINT NOT NULL,
  tenure       BIGINT NOT NULL,        -- of the node that has the connection
  protocol     TEXT NOT NULL,
  address      TEXT NOT NULL,          -- of the client
  app_password TEXT NOT NULL,          -- its name; '' for the mailbox's own
  program      TEXT NOT NULL,          -- what the client calls itself; '' for nothing
  since        BIGINT NOT NULL
);
CREATE INDEX mailbox_session_mailbox ON mailbox_session (mailbox, id);
CREATE INDEX mailbox_session_tenure ON mailbox_session (tenure, id);
