-- +goose Up

-- Names and conventions: ids are integers in the order of time (db.ID), times
-- are microseconds since 1970, JSON is TEXT. Each table belongs to one package,
-- named above it; no other package writes it, and only those named under
-- "reads" read it. Fragments in braces are rendered per engine (db.SQL).

-- owner: db
CREATE TABLE node (
  id      {id},            -- 1..1023, a part of every id that the node makes
  name    TEXT NOT NULL UNIQUE,
  seen_at BIGINT NOT NULL  -- ids made before this are taken
);

-- A tenure is one life of a node: what it has in hand carries the tenure's id.
-- owner: db
CREATE TABLE tenure (
  id         {id},
  node       BIGINT NOT NULL REFERENCES node (id),
  holder     TEXT NOT NULL,    -- names the data folder, whose lock proves that a former process is gone
  expires_at BIGINT NOT NULL   -- on the database's clock
);

-- A duty is work that one node does for all, such as numbering events.
-- owner: db
CREATE TABLE duty (
  name       TEXT NOT NULL PRIMARY KEY,
  tenure     BIGINT NOT NULL,
  fence      BIGINT NOT NULL,  -- rises with every change of hands
  expires_at BIGINT NOT NULL
);

-- owner: account
CREATE TABLE account (
  id         {id},
  email      TEXT NOT NULL UNIQUE,
  name       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at BIGINT NOT NULL
);

-- owner: account
CREATE TABLE api_key (
  id           {id},
  account      BIGINT NOT NULL REFERENCES account (id),
  name         TEXT NOT NULL,
  hint         TEXT NOT NULL,          -- the first characters, to recognise it by
  hash         {blob} NOT NULL UNIQUE,
  scopes       TEXT NOT NULL,          -- separated by blanks
  domain       TEXT NOT NULL,          -- may act for this domain only; '' for all
  networks     TEXT NOT NULL,          -- prefixes it may be used from, separated by blanks; '' for all
  expires_at   BIGINT NOT NULL,        -- 0 for never
  last_used_at BIGINT NOT NULL,
  created_at   BIGINT NOT NULL
);
CREATE INDEX api_key_account ON api_key (account, id);

-- Several accounts may claim a name; at most one holds it.
-- owner: domain
CREATE TABLE domain (
  id               {id},
  account          BIGINT NOT NULL REFERENCES account (id),
  name             TEXT NOT NULL,      -- A-labels, lower case
  status           TEXT NOT NULL CHECK (status IN ('pending', 'verified', 'degraded', 'failed', 'suspended')),
  held             BOOLEAN NOT NULL,   -- ownership is proven, and nobody else's
  token            TEXT NOT NULL,      -- what the OWNERSHIP record must say
  receives         BOOLEAN NOT NULL,   -- its MX was seen to be ours
  sends            BOOLEAN NOT NULL,   -- a DKIM key of ours was seen
  aligned          BOOLEAN NOT NULL,   -- MX and SPF were seen: it can be its own return path
  records          TEXT NOT NULL,      -- JSON: what was seen per record
  checked_at       BIGINT NOT NULL,
  next_check_at    BIGINT NOT NULL,
  checks           BIGINT NOT NULL,    -- since the last change, for the polling's back-off
  mismatch_since   BIGINT NOT NULL,    -- a verified domain degrades a day after this; 0 for none
  contested_since  BIGINT NOT NULL,    -- another's TXT is seen and the holder's not; 0 for none
  verified_at      BIGINT NOT NULL,
  created_at       BIGINT NOT NULL,
  UNIQUE (account, name)
);
CREATE UNIQUE INDEX domain_holder ON domain (name) WHERE held;
CREATE INDEX domain_account ON domain (account, id);
CREATE INDEX domain_name ON domain (name);
CREATE INDEX domain_check ON domain (next_check_at);

-- owner: domain
CREATE TABLE dkim_key (
  id         {id},
  domain     BIGINT NOT NULL REFERENCES domain (id) ON DELETE CASCADE,
  selector   TEXT NOT NULL,
  algorithm  TEXT NOT NULL CHECK (algorithm IN ('rsa', 'ed25519')),
  private    {blob} NOT NULL,          -- sealed
  record     TEXT NOT NULL,            -- the TXT value to publish
  seen       BOOLEAN NOT NULL,         -- in DNS, at the last check that got an answer
  created_at BIGINT NOT NULL,
  UNIQUE (domain, selector)
);

-- owner: mailbox
CREATE TABLE mailbox (
  id           {id},
  account      BIGINT NOT NULL REFERENCES account (id),
  domain       BIGINT NOT NULL REFERENCES domain (id),
  local_part   TEXT NOT NULL,          -- as given
  address      TEXT NOT NULL,          -- folded, for look-ups (address.Key)
  display_name TEXT NOT NULL,
  password     TEXT NOT NULL,          -- argon2id
  generation   BIGINT NOT NULL,        -- rises when cached log-ins must be forgotten
  quota        BIGINT NOT NULL,        -- bytes
  status       TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at   BIGINT NOT NULL,
  deleted_at   BIGINT NOT NULL         -- 0 while it lives; restorable for 30 days
);
CREATE UNIQUE INDEX mailbox_live ON mailbox (domain, address) WHERE deleted_at = 0;
CREATE INDEX mailbox_domain ON mailbox (domain);
CREATE INDEX mailbox_address ON mailbox (address);
CREATE INDEX mailbox_account ON mailbox (account, id);
CREATE INDEX mailbox_deleted ON mailbox (deleted_at) WHERE deleted_at > 0;

-- owner: mailbox
CREATE TABLE mailbox_usage (
  mailbox    {id},
  bytes      BIGINT NOT NULL,
  messages   BIGINT NOT NULL,
  over_since BIGINT NOT NULL           -- when RCPT was first refused for lack of room; 0 for none
) {hot};

-- owner: folder
CREATE TABLE folder (
  id          {id},
  mailbox     BIGINT NOT NULL REFERENCES mailbox (id),
  name        TEXT NOT NULL,           -- UTF-8, '/' between levels
  special     TEXT NOT NULL,           -- its special use (RFC 6154) such as '\Sent', or ''
  uidvalidity BIGINT NOT NULL,
  uid_next    BIGINT NOT NULL,
  modseq      BIGINT NOT NULL,
  changed     BIGINT NOT NULL,         -- the modseq of the last change that is no arrival
  messages    BIGINT NOT NULL,
  unseen      BIGINT NOT NULL,
  bytes       BIGINT NOT NULL,
  recent_uid  BIGINT NOT NULL,         -- messages from here on no session has seen yet
  log_floor   BIGINT NOT NULL,         -- changes up to this modseq are no longer in the log
  UNIQUE (mailbox, name)
) {hot};
CREATE UNIQUE INDEX folder_special ON folder (mailbox, special) WHERE special <> '';

-- Folders that were deleted, until their messages are gone too and no folder
-- made meanwhile can have got the same UIDVALIDITY.
-- owner: folder
CREATE TABLE dropped (
  folder      {id},
  mailbox     BIGINT NOT NULL,
  uidvalidity BIGINT NOT NULL
);
CREATE INDEX dropped_mailbox ON dropped (mailbox);

-- owner: folder
CREATE TABLE subscription (
  mailbox BIGINT NOT NULL REFERENCES mailbox (id),
  name    TEXT NOT NULL,
  PRIMARY KEY (mailbox, name)
) {clustered};

-- A message as filed: it never changes. Several folders of its mailbox may
-- show it.
-- owner: folder
CREATE TABLE message (
  id         {id},
  mailbox    BIGINT NOT NULL,
  blob       BIGINT NOT NULL,
  size       BIGINT NOT NULL,
  outbound   BIGINT NOT NULL,          -- the outbound_message that it is a delivery of; 0 for none
  message_id TEXT NOT NULL,
  envelope   {blob} NOT NULL,          -- as IMAP shows it
  structure  {blob} NOT NULL           -- the index of its parts (message.Index)
);

-- owner: folder
CREATE TABLE folder_message (
  folder        BIGINT NOT NULL,
  uid           BIGINT NOT NULL,
  message       BIGINT NOT NULL,
  flags         BIGINT NOT NULL,
  keywords      TEXT NOT NULL,         -- sorted, separated by blanks
  modseq        BIGINT NOT NULL,
  size          BIGINT NOT NULL,
  internal_date BIGINT NOT NULL,
  saved_at      BIGINT NOT NULL,
  PRIMARY KEY (folder, uid)
) {clustered} {hot};
CREATE INDEX folder_message_message ON folder_message (message);

-- What each command changed; arrivals are seen by their UIDs and not logged.
-- owner: folder
CREATE TABLE folder_change (
  folder   BIGINT NOT NULL,
  modseq   BIGINT NOT NULL,
  vanished BOOLEAN NOT NULL,           -- else flags changed
  uids     TEXT NOT NULL,              -- a UID set such as 1:5,9
  PRIMARY KEY (folder, modseq)
) {clustered};

-- Messages that left a folder; deleted once no folder shows them.
-- owner: folder
CREATE TABLE expunged (
  message BIGINT NOT NULL PRIMARY KEY,
  at      BIGINT NOT NULL
) {clustered};
CREATE INDEX expunged_at ON expunged (at);

-- Which deliveries the local courier has filed: should their outcome be lost,
-- they are not filed again. Pruned after some days.
-- owner: inbound
CREATE TABLE filing (
  message BIGINT NOT NULL,             -- the outbound_message
  n       BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX filing_at ON filing (at);

-- The bytes of one message: those in the row, then those of the file. Small
-- messages have no file. Rows of several recipients may share one.
-- owner: blob
-- reads: folder
CREATE TABLE blob (
  id    {id},
  size  BIGINT NOT NULL,               -- of both together
  file  BIGINT NOT NULL,               -- names the file in the blob store; 0 for none
  bytes {blob} NOT NULL
);
CREATE INDEX blob_file ON blob (file) WHERE file > 0;

-- owner: outbound
CREATE TABLE outbound_message (
  id          {id},
  account     BIGINT NOT NULL,
  domain      BIGINT NOT NULL,
  mailbox     BIGINT NOT NULL,         -- that submitted it; 0 for the API
  sender      TEXT NOT NULL,           -- MAIL FROM of a submission; '' is the null sender
  returns_to  TEXT NOT NULL,           -- where the API's signed return paths are; '' for a submission
  header_from TEXT NOT NULL,
  subject     TEXT NOT NULL,
  message_id  TEXT NOT NULL,
  thread_id   TEXT NOT NULL,
  metadata    TEXT NOT NULL,           -- JSON object
  utf8        BOOLEAN NOT NULL,        -- needs SMTPUTF8
  eight_bit   BOOLEAN NOT NULL,        -- the body holds bytes above 127
  size        BIGINT NOT NULL,
  blob        BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  created_at  BIGINT NOT NULL
);
CREATE INDEX outbound_message_account ON outbound_message (account, id);

-- owner: queue
-- reads: inbound
CREATE TABLE delivery (
  message     BIGINT NOT NULL,
  n           BIGINT NOT NULL,         -- 0…, in the order of recipients
  account     BIGINT NOT NULL,
  recipient   TEXT NOT NULL,
  kind        TEXT NOT NULL,           -- to, cc, bcc; envelope (submission)
  destination TEXT NOT NULL,           -- the recipient's domain, A-labels
  state       TEXT NOT NULL CHECK (state IN ('scheduled', 'queued', 'deferred', 'delivered',
              'bounced', 'complained', 'suppressed', 'failed', 'cancelled')),
  due_at      BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  tenure      BIGINT,                  -- which node has it in hand
  attempts    BIGINT NOT NULL,
  sequence    BIGINT NOT NULL,         -- of its events
  code        BIGINT NOT NULL,         -- the last reply
  enhanced    TEXT NOT NULL,
  reply       TEXT NOT NULL,
  remote      TEXT NOT NULL,           -- the host that gave it, 'local' or 'sandbox'
  updated_at  BIGINT NOT NULL,
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX delivery_due ON delivery (due_at) WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_destination ON delivery (destination, due_at) WHERE tenure IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_tenure ON delivery (tenure, message, n) WHERE tenure IS NOT NULL;

-- owner: queue
CREATE TABLE attempt (
  message    BIGINT NOT NULL,
  n          BIGINT NOT NULL,
  attempt    BIGINT NOT NULL,          -- 1…
  started_at BIGINT NOT NULL,
  micros     BIGINT NOT NULL,          -- how long it took
  outcome    TEXT NOT NULL,            -- delivered, deferred, bounced, failed
  host       TEXT NOT NULL,
  ip         TEXT NOT NULL,
  tls        TEXT NOT NULL,
  stage      TEXT NOT NULL,
  code       BIGINT NOT NULL,
  enhanced   TEXT NOT NULL,
  reply      TEXT NOT NULL,
  transcript TEXT NOT NULL,
  PRIMARY KEY (message, n, attempt)
) {clustered};

-- What happened, written in the transaction in which it happened; the
-- sequencer gives the position afterwards.
-- owner: event
CREATE TABLE event (
  id         {id},
  position   BIGINT,
  account    BIGINT NOT NULL,
  kind       TEXT NOT NULL,
  message    BIGINT NOT NULL,          -- the outbound_message it is about; 0 for none
  data       TEXT NOT NULL,            -- JSON
  created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX event_position ON event (position) WHERE position IS NOT NULL;
CREATE INDEX event_account ON event (account, position) WHERE position IS NOT NULL;
CREATE INDEX event_new ON event (id) WHERE position IS NULL;
CREATE INDEX event_message ON event (message) WHERE message > 0;
