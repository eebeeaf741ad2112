-- +goose Up

-- How much a spam filter may say about mail to a mailbox: off, lenient, normal
-- or strict.
ALTER TABLE mailbox ADD COLUMN spam_filter TEXT NOT NULL DEFAULT 'normal';
