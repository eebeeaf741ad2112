-- +goose Up

-- Which secret key the sealed values of this database were sealed with: one
-- row, for all nodes.
-- owner: db
CREATE TABLE service_key (
  id          {id},           -- 1
  fingerprint TEXT NOT NULL
);
