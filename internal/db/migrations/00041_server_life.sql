-- +goose Up

-- Names the life of the PostgreSQL server: what is not logged is gone after a
-- crash, and not there on a standby that takes over, so that the row is another
-- one then. One row; SQLite has no use for it.
-- owner: db
CREATE TABLE server_life (
  id   {id},          -- 1
  name TEXT NOT NULL
);
{postgres}ALTER TABLE server_life SET UNLOGGED;
