-- +goose Up

-- What arrived for an account, newest first, whatever the mailbox.
CREATE INDEX message_account ON message (account, id) WHERE account <> 0;
