-- +goose Up

-- The DKIM key of the service's own name: it signs reports and the mail of the
-- service itself. It is generated once and shared by all nodes.
-- owner: domain
CREATE TABLE host_key (
  algorithm  {text} PRIMARY KEY CHECK (algorithm IN ('rsa')),
  selector   TEXT NOT NULL,
  private    {blob} NOT NULL, -- sealed
  record     TEXT NOT NULL,   -- the TXT value to publish
  created_at BIGINT NOT NULL
);
