-- +goose Up

-- What a message answers, for IMAP's THREAD=REFERENCES. Of messages that were
-- stored before it is read, and put here, when a client first asks for it.
ALTER TABLE message ADD COLUMN answers {blob} NOT NULL DEFAULT ''; -- hashes of Message-IDs, the nearest last; empty: not known yet
