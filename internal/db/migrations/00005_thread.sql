-- +goose Up

-- Threads: which messages of an account answer each other. A message that
-- arrives, or that is submitted, is found by the hash of its Message-ID; mail of
-- the API by its id, which is in its Message-ID.
ALTER TABLE outbound_message ADD COLUMN reference BIGINT NOT NULL DEFAULT 0; -- hash of a Message-ID that is not made of the id; else 0
CREATE INDEX outbound_message_thread ON outbound_message (account, thread_id, id) WHERE thread_id <> '';
CREATE INDEX outbound_message_reference ON outbound_message (account, reference, id) WHERE reference <> 0;

-- What is appended by a client is in no thread.
ALTER TABLE message ADD COLUMN account BIGINT NOT NULL DEFAULT 0;
ALTER TABLE message ADD COLUMN domain BIGINT NOT NULL DEFAULT 0;
ALTER TABLE message ADD COLUMN thread TEXT NOT NULL DEFAULT '';
ALTER TABLE message ADD COLUMN reference BIGINT NOT NULL DEFAULT 0; -- hash of its Message-ID; never 0 in a thread
ALTER TABLE message ADD COLUMN arrival BIGINT NOT NULL DEFAULT 0;   -- the same for all copies of one message
CREATE INDEX message_thread ON message (account, thread, id) WHERE thread <> '';
CREATE INDEX message_reference ON message (account, reference, arrival, id) WHERE reference <> 0;
