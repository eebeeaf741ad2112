-- +goose Up

-- owner: template
CREATE TABLE template (
  id         {id},
  account    BIGINT NOT NULL REFERENCES account (id),
  name       TEXT NOT NULL,
  alias      TEXT NOT NULL,            -- '' for none
  latest     BIGINT NOT NULL,          -- the number of the newest version
  published  BIGINT NOT NULL,          -- that of the version which is sent
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX template_account ON template (account, id);
CREATE UNIQUE INDEX template_alias ON template (account, alias) WHERE alias <> '';

-- A version never changes.
-- owner: template
CREATE TABLE template_version (
  template   BIGINT NOT NULL REFERENCES template (id) ON DELETE CASCADE,
  version    BIGINT NOT NULL,          -- 1…
  subject    TEXT NOT NULL,
  html       TEXT NOT NULL,
  text       TEXT NOT NULL,
  inline_css BOOLEAN NOT NULL,
  variables  TEXT NOT NULL,            -- JSON
  created_at BIGINT NOT NULL,
  PRIMARY KEY (template, version)
) {clustered};

-- Which template an API mail was made of; 0 for none.
ALTER TABLE outbound_message ADD COLUMN template BIGINT NOT NULL DEFAULT 0;
ALTER TABLE outbound_message ADD COLUMN template_version BIGINT NOT NULL DEFAULT 0;
