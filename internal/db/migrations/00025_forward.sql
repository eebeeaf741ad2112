-- +goose Up

-- The alias by which a message came that goes on to an address elsewhere; 0 for
-- what was sent from here.
ALTER TABLE outbound_message ADD COLUMN forwarded BIGINT NOT NULL DEFAULT 0;
