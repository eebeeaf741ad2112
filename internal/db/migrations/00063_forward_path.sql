-- +goose Up

-- Who sent what an account forwarded, where his address is too long for a return path of
-- its own. It is kept for as long as a report may come back.
-- owner: inbound
CREATE TABLE forward_path (
  id      {id},
  account BIGINT NOT NULL,
  sender  TEXT NOT NULL,
  at      BIGINT NOT NULL
);
CREATE INDEX forward_path_at ON forward_path (at);
