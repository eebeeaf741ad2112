-- +goose Up

-- A DKIM key is published before it is used, and stays published for a while
-- after another has taken its place.
ALTER TABLE dkim_key ADD COLUMN state TEXT NOT NULL DEFAULT 'active'; -- pending, active, retiring, retired
ALTER TABLE dkim_key ADD COLUMN given BOOLEAN NOT NULL DEFAULT FALSE; -- the customer's own
ALTER TABLE dkim_key ADD COLUMN active_at BIGINT NOT NULL DEFAULT 0;  -- when it was first seen in DNS; 0 for never
ALTER TABLE dkim_key ADD COLUMN until_at BIGINT NOT NULL DEFAULT 0;   -- retiring: until when; retired: since when
UPDATE dkim_key SET active_at = created_at WHERE seen;
CREATE UNIQUE INDEX dkim_key_pending ON dkim_key (domain, algorithm) WHERE state = 'pending';
CREATE INDEX dkim_key_domain ON dkim_key (domain, id);

ALTER TABLE domain ADD COLUMN dkim_rotation_days BIGINT NOT NULL DEFAULT 0; -- 0: keys are not replaced by themselves
