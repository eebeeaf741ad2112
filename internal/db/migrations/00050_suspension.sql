-- +goose Up

-- reads account: mailbox
-- reads account: domain
-- reads domain: mailbox
-- reads domain: migration

-- An operator has suspended the domain: its checks go on, and status keeps what they
-- found, which is what counts again when the suspension ends.
ALTER TABLE domain ADD COLUMN suspended_at BIGINT NOT NULL DEFAULT 0; -- 0: it is not

-- Each node looks every few seconds which are suspended.
CREATE INDEX domain_suspended ON domain (id) WHERE suspended_at > 0;
CREATE INDEX account_suspended ON account (id) WHERE status = 'suspended';
