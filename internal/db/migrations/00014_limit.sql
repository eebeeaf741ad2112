-- +goose Up

-- What an operator allows an account instead of what all may: -1 is as all, 0
-- is no limit.
-- owner: quota
CREATE TABLE limit_account (
  account             {id} REFERENCES account (id),
  requests_per_second BIGINT NOT NULL,
  burst               BIGINT NOT NULL, -- requests that may come at once
  sends_per_hour      BIGINT NOT NULL,
  sends_per_day       BIGINT NOT NULL,
  recipients_per_day  BIGINT NOT NULL,
  storage_mb          BIGINT NOT NULL  -- what the quotas of its mailboxes may be together
);

-- What was drawn of the limit of an hour or a day: nodes draw a block and spend
-- it in memory. Windows that are over go when the account opens a new day.
-- owner: quota
CREATE TABLE limit_window (
  account   BIGINT NOT NULL,
  key       BIGINT NOT NULL,           -- the api_key whose own limit it is; 0: the account's
  name      TEXT NOT NULL,             -- of the limit, such as sends_per_hour
  starts_at BIGINT NOT NULL,
  drawn     BIGINT NOT NULL,           -- by all nodes, less what they gave back
  block     BIGINT NOT NULL,           -- the size of the last block
  warned    BIGINT NOT NULL,           -- the draw that was told as rate_limit_warning; 0: none yet
  PRIMARY KEY (account, key, name, starts_at)
) {clustered};

-- What a key may at most of what its account may; 0 is no limit of its own.
ALTER TABLE api_key ADD COLUMN requests_per_second BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN burst BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN sends_per_hour BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN sends_per_day BIGINT NOT NULL DEFAULT 0;
ALTER TABLE api_key ADD COLUMN recipients_per_day BIGINT NOT NULL DEFAULT 0;
