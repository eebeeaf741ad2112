-- +goose Up

-- Tells this database from others that are used with the same secret key: a
-- copy, or one begun anew. One row, for all nodes.
-- owner: db
CREATE TABLE database_name (
  id   {id},          -- 1
  name TEXT NOT NULL
);
