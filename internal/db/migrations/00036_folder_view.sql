-- +goose Up

-- What a node knew of a large folder when it wrote that down, so that the next
-- one to open it need not read all its messages. Derived: where it is missing or
-- too old, the messages are read.
-- owner: folder
CREATE TABLE folder_view (
  folder  {id},
  version BIGINT NOT NULL,             -- rises with every writing
  format  BIGINT NOT NULL,             -- of the parts
  changed BIGINT NOT NULL,             -- folder.changed then
  next    BIGINT NOT NULL,             -- messages from this UID on are not in it
  words   TEXT NOT NULL                -- the sets of keywords that the parts number, a line each
);

-- Its messages, by ranges of UIDs.
-- owner: folder
CREATE TABLE folder_view_part (
  folder BIGINT NOT NULL,
  part   BIGINT NOT NULL,              -- UID >> 14
  data   {blob} NOT NULL,
  PRIMARY KEY (folder, part)
);
