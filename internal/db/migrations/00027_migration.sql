-- +goose Up

-- reads tenure: migration
-- reads mailbox: migration
-- reads account: migration

-- A mailbox that is being copied, or was, from another server.
-- owner: migration
CREATE TABLE migration (
  id            {id},
  account       BIGINT NOT NULL REFERENCES account (id),
  domain        BIGINT NOT NULL,       -- of the mailbox
  mailbox       BIGINT NOT NULL,
  host          TEXT NOT NULL,
  port          BIGINT NOT NULL,
  tls           TEXT NOT NULL CHECK (tls IN ('implicit', 'starttls', 'none')),
  username      TEXT NOT NULL,
  password      {blob},                -- sealed; NULL once it has ended
  insecure      BIGINT NOT NULL,       -- 1: certificates are not checked
  chosen        TEXT NOT NULL,         -- JSON list of folders; '' for all
  source        BIGINT NOT NULL,       -- hash of host and user name: one at a time
  state         TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
  trouble       TEXT NOT NULL,         -- why it failed, or waits; '' for none
  tenure        BIGINT,                -- which node has it in hand
  due_at        BIGINT,                -- when a node shall take it, while none has it; NULL: it has ended
  retries       BIGINT NOT NULL,       -- tries in a row without progress
  planned       BIGINT NOT NULL,       -- 1 once the folders are known
  folders       BIGINT NOT NULL,
  folders_done  BIGINT NOT NULL,
  messages      BIGINT NOT NULL,       -- of all folders
  messages_done BIGINT NOT NULL,       -- that were looked at
  copied        BIGINT NOT NULL,
  skipped       BIGINT NOT NULL,       -- there already
  failed        BIGINT NOT NULL,
  bytes         BIGINT NOT NULL,       -- of all folders
  bytes_copied  BIGINT NOT NULL,
  run_at        BIGINT NOT NULL,       -- when it was last taken in hand, and what was done until then
  run_messages  BIGINT NOT NULL,
  run_bytes     BIGINT NOT NULL,
  created_at    BIGINT NOT NULL,
  started_at    BIGINT NOT NULL,       -- 0: not yet
  finished_at   BIGINT NOT NULL,       -- 0: not yet
  updated_at    BIGINT NOT NULL
) {hot};
CREATE INDEX migration_account ON migration (account, id);
CREATE INDEX migration_domain ON migration (account, domain, id);
CREATE INDEX migration_mailbox ON migration (mailbox, id);
CREATE INDEX migration_due ON migration (due_at) WHERE tenure IS NULL AND due_at IS NOT NULL;
CREATE INDEX migration_tenure ON migration (tenure, id) WHERE tenure IS NOT NULL;
CREATE INDEX migration_busy ON migration (account) WHERE tenure IS NOT NULL;
CREATE INDEX migration_open ON migration (account, id) WHERE state IN ('queued', 'running');
CREATE UNIQUE INDEX migration_source ON migration (source) WHERE tenure IS NOT NULL;

-- A folder of the source, and how far it is.
-- owner: migration
CREATE TABLE migration_folder (
  migration   BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  name        TEXT NOT NULL,           -- there
  target      TEXT NOT NULL,           -- here
  state       TEXT NOT NULL CHECK (state IN ('waiting', 'done', 'failed')),
  trouble     TEXT NOT NULL,           -- why it failed; '' for none
  subscribed  BIGINT NOT NULL,
  uidvalidity BIGINT NOT NULL,         -- of what follows
  last_uid    BIGINT NOT NULL,         -- up to which all is done
  messages    BIGINT NOT NULL,
  done        BIGINT NOT NULL,
  copied      BIGINT NOT NULL,
  skipped     BIGINT NOT NULL,
  failed      BIGINT NOT NULL,
  bytes       BIGINT NOT NULL,         -- -1: not known yet
  PRIMARY KEY (migration, n)
) {clustered} {hot};

-- What was copied, so that none comes twice.
-- owner: migration
CREATE TABLE migration_copied (
  mailbox     BIGINT NOT NULL,
  source      BIGINT NOT NULL,         -- hash of host, user name and folder
  uidvalidity BIGINT NOT NULL,
  uid         BIGINT NOT NULL,
  digest      BIGINT NOT NULL,         -- of Message-ID, size and date: for when UIDVALIDITY is another
  migration   BIGINT NOT NULL,
  PRIMARY KEY (mailbox, source, uidvalidity, uid)
) {clustered};
CREATE INDEX migration_copied_digest ON migration_copied (mailbox, source, digest);

-- What could not be copied, the first thousand of each.
-- owner: migration
CREATE TABLE migration_failure (
  migration BIGINT NOT NULL,
  n         BIGINT NOT NULL,
  folder    TEXT NOT NULL,
  uid       BIGINT NOT NULL,           -- 0: the folder as a whole
  why       TEXT NOT NULL,
  PRIMARY KEY (migration, n)
) {clustered};
