-- +goose Up

-- What an inbound_email event says of the text of its message is read when the
-- event is first read itself, and is kept then: this is the message until then,
-- 0 afterwards and for every other event.
ALTER TABLE event ADD COLUMN content BIGINT NOT NULL DEFAULT 0;

-- How an arriving message was judged, such as "spf=pass dkim=fail"; what is not
-- named is none.
ALTER TABLE message ADD COLUMN verdicts TEXT NOT NULL DEFAULT '';

-- For listing what a mailbox holds, newest first, whatever the folders.
CREATE INDEX message_mailbox ON message (mailbox, id);

-- What the sandbox kept back of what was sent to the outside.
-- owner: relay
CREATE TABLE captured (
  id         {id},
  account    BIGINT NOT NULL,
  domain     TEXT NOT NULL,            -- of its From, A-labels
  message    BIGINT NOT NULL,          -- the outbound_message
  sender     TEXT NOT NULL,            -- MAIL FROM; '' is the null sender
  recipients TEXT NOT NULL,            -- JSON list of addresses
  blob       BIGINT NOT NULL,
  size       BIGINT NOT NULL,
  structure  {blob} NOT NULL           -- the index of its parts (message.Index)
);
CREATE INDEX captured_account ON captured (account, id);
