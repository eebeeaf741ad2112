-- +goose Up

-- Mail of the service to one of the people may hold a link that lets in whoever
-- has it. Only the protocols of the mailbox that it is in give its text.
ALTER TABLE message ADD COLUMN private BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE outbound_message ADD COLUMN private BOOLEAN NOT NULL DEFAULT FALSE;
