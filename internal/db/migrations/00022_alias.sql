-- +goose Up

-- An alias is an address without a password, whose mail goes to others. An
-- address of a domain belongs to a mailbox that lives or to an alias, never to
-- both: whoever adds one holds the account (account.Hold).
-- owner: mailbox
CREATE TABLE alias (
  id         {id},
  account    BIGINT NOT NULL REFERENCES account (id),
  domain     BIGINT NOT NULL REFERENCES domain (id),
  local_part TEXT NOT NULL,            -- as given; '*' takes what nothing else does
  address    TEXT NOT NULL,            -- folded, for look-ups (address.Key)
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX alias_address ON alias (domain, address);
CREATE INDEX alias_account ON alias (account, id);

-- owner: mailbox
CREATE TABLE alias_target (
  alias   BIGINT NOT NULL,
  n       BIGINT NOT NULL,             -- 0…, in the order in which they were given
  mailbox BIGINT NOT NULL,             -- of the same account; 0 for an address elsewhere
  address TEXT NOT NULL,               -- elsewhere; '' for a mailbox
  PRIMARY KEY (alias, n)
) {clustered};
CREATE INDEX alias_target_mailbox ON alias_target (mailbox) WHERE mailbox > 0;
