-- +goose Up

-- What SCRAM-SHA-256 proves a password by (RFC 5803 §2), several separated by
-- blanks; '' for none, as everywhere while the operator does not offer it.
ALTER TABLE mailbox ADD COLUMN scram TEXT NOT NULL DEFAULT '';
-- The mailbox's password that it was made of: an older release changes that alone,
-- and then it counts for nothing.
ALTER TABLE mailbox ADD COLUMN scram_of TEXT NOT NULL DEFAULT '';
CREATE INDEX mailbox_scram ON mailbox (id) WHERE scram <> '';
ALTER TABLE app_password ADD COLUMN scram TEXT NOT NULL DEFAULT '';
CREATE INDEX app_password_scram ON app_password (id) WHERE scram <> '';
