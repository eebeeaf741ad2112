-- +goose Up

-- What is done with mail to a domain that a spam filter objects to: enforce
-- (what the filter asks for), junk (no more than that), off (nothing).
ALTER TABLE domain ADD COLUMN spam_filtering TEXT NOT NULL DEFAULT 'enforce';

-- The mode of the MTA-STS policy that is published for a domain.
ALTER TABLE domain ADD COLUMN mta_sts TEXT NOT NULL DEFAULT 'testing';
