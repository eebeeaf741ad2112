-- +goose Up

-- What was copied otherwise than it was at the source: a line for all messages of a
-- folder of which the same is to be said.
-- owner: migration
CREATE TABLE migration_note (
  migration BIGINT NOT NULL,
  k         BIGINT NOT NULL,           -- hash of folder and note
  folder    TEXT NOT NULL,             -- there
  uid       BIGINT NOT NULL,           -- there, of the first
  note      TEXT NOT NULL,
  messages  BIGINT NOT NULL,           -- how many
  PRIMARY KEY (migration, k)
) {clustered};
