-- +goose Up

-- What the quotas of an account's live mailboxes are together, as far as they are
-- counted: the sum of mailbox.counted. It changes in the transaction that changes
-- that, by whoever holds the account (account.Hold).
-- owner: mailbox
CREATE TABLE mailbox_storage (
  account  {id},
  allotted BIGINT NOT NULL             -- bytes
);

-- How much of it is in mailbox_storage. A release that doesn't know the column leaves
-- it behind: the difference is added to each reading, and counted within an hour.
ALTER TABLE mailbox ADD COLUMN counted BIGINT NOT NULL DEFAULT 0;
CREATE INDEX mailbox_uncounted ON mailbox (account, id)
  WHERE counted <> CASE WHEN deleted_at = 0 THEN quota ELSE 0 END;

-- All that follows some letter of a mailbox's address and display name, in lower case,
-- cut to 12 letters: who searches for a part of them finds it by how it begins.
-- owner: mailbox
CREATE TABLE mailbox_piece (
  account BIGINT NOT NULL,
  piece   {text} NOT NULL,
  mailbox BIGINT NOT NULL,
  PRIMARY KEY (account, piece, mailbox)
) {clustered};

-- The display name with which it is in mailbox_piece; NULL for none yet. Those in which
-- it is another, as an older release leaves them, are searched one by one.
ALTER TABLE mailbox ADD COLUMN indexed_name TEXT;
CREATE INDEX mailbox_unindexed ON mailbox (account, id) WHERE indexed_name IS DISTINCT FROM display_name;

-- For lists of the live and of the deleted, of an account and of a domain.
CREATE INDEX mailbox_account_live ON mailbox (account, deleted_at, id);
CREATE INDEX mailbox_domain_live ON mailbox (domain, deleted_at, id);
CREATE INDEX mailbox_account_deleted ON mailbox (account, id) WHERE deleted_at > 0;
CREATE INDEX mailbox_domain_deleted ON mailbox (domain, id) WHERE deleted_at > 0;
DROP INDEX mailbox_account;
DROP INDEX mailbox_domain;

-- For the list of a domain's aliases: with one that begins with the domain, too,
-- PostgreSQL would sort all of them.
CREATE INDEX alias_domain ON alias (domain, id);
DROP INDEX alias_address;
CREATE UNIQUE INDEX alias_address ON alias (address, domain);
