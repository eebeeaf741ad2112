-- +goose Up

-- What is done with mail to a domain that fails the DMARC policy of its author:
-- enforce (what the author asks for), junk (no more than that), off (nothing).
ALTER TABLE domain ADD COLUMN dmarc_enforcement TEXT NOT NULL DEFAULT 'enforce';
