-- +goose Up

-- The answers to requests that carried an Idempotency-Key, for a day.
-- owner: idempotency
CREATE TABLE idempotency (
  account    BIGINT NOT NULL,
  path       TEXT NOT NULL,            -- of the operation, such as /outbound/send
  key        TEXT NOT NULL,            -- as the client gave it
  sum        {blob} NOT NULL,          -- SHA-256 of the request's body
  answer     {blob} NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (account, path, key)
) {clustered};
CREATE INDEX idempotency_expires ON idempotency (expires_at);
