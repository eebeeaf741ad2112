-- +goose Up

-- An API key that was sent over HTTP without TLS may have been read on its way.
-- 0 for never.
ALTER TABLE api_key ADD COLUMN exposed_at BIGINT NOT NULL DEFAULT 0;
