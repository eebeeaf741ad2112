-- +goose Up

-- Names and conventions: ids are integers in the order of time (db.ID), times
-- are microseconds since 1970, JSON is TEXT. Each table belongs to one package,
-- named above it; no other package writes it, and only those named under
-- "reads" read it. Fragments in braces are rendered per engine (db.SQL).
--
-- Text by which rows are found is {text}: PostgreSQL compares it byte by byte, as
-- SQLite does. An index in the order of a language is valid only until an upgrade of
-- the operating system changes that order.

-- owner: db
CREATE TABLE node (
  id      {id},            -- 1..1023, a part of every id that the node makes
  name    {text} NOT NULL UNIQUE,
  seen_at BIGINT NOT NULL  -- ids made before this are taken
);

-- A node has a tenure while it runs: the rows it works on carry its id.
-- owner: db
-- reads: webhook, migration, mailbox
CREATE TABLE lease (
  id         {id},
  node       BIGINT NOT NULL REFERENCES node (id),
  holder     TEXT NOT NULL,    -- names the data folder, whose lock proves that a former process is gone
  expires_at BIGINT NOT NULL   -- on the database's clock
);

-- A leader job: work that one node does for all, such as numbering events.
-- owner: db
CREATE TABLE leader_job (
  name       {text} NOT NULL PRIMARY KEY,
  lease     BIGINT NOT NULL,
  fence      BIGINT NOT NULL,  -- rises with every change of hands
  expires_at BIGINT NOT NULL
);

-- owner: account
-- reads: migration, backup, mailbox, domain
CREATE TABLE account (
  id         {id},
  email      {text} NOT NULL UNIQUE,
  name       TEXT NOT NULL,
  status     TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at BIGINT NOT NULL
);
CREATE INDEX account_suspended ON account (id) WHERE status = 'suspended';

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
  created_at   BIGINT NOT NULL,
  -- What a key may at most of what its account may; 0 is no limit of its own.
  requests_per_second BIGINT NOT NULL DEFAULT 0,
  burst BIGINT NOT NULL DEFAULT 0,
  sends_per_hour BIGINT NOT NULL DEFAULT 0,
  sends_per_day BIGINT NOT NULL DEFAULT 0,
  recipients_per_day BIGINT NOT NULL DEFAULT 0,
  -- An API key that was sent over HTTP without TLS may have been read on its way.
  -- 0 for never.
  exposed_at BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX api_key_account ON api_key (account, id);

-- Several accounts may claim a name; at most one holds it.
-- owner: domain
-- reads: mailbox, migration
CREATE TABLE domain (
  id               {id},
  account          BIGINT NOT NULL REFERENCES account (id),
  name             {text} NOT NULL,      -- A-labels, lower case
  status           TEXT NOT NULL CHECK (status IN ('pending', 'verified', 'degraded', 'failed', 'suspended')),
  owned             BOOLEAN NOT NULL,   -- ownership is proven, and nobody else's
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
  dkim_rotation_days BIGINT NOT NULL DEFAULT 0, -- 0: keys are not replaced by themselves
  -- What is done with mail to a domain that fails the DMARC policy of its author:
  -- enforce (what the author asks for), junk (no more than that), off (nothing).
  dmarc_enforcement TEXT NOT NULL DEFAULT 'enforce',
  -- What is done with mail to a domain that a spam filter objects to: enforce
  -- (what the filter asks for), junk (no more than that), off (nothing).
  spam_filtering TEXT NOT NULL DEFAULT 'enforce',
  -- The mode of the MTA-STS policy that is published for a domain.
  mta_sts TEXT NOT NULL DEFAULT 'testing',
  -- An operator has suspended the domain: its checks go on, and status keeps what they
  -- found, which is what counts again when the suspension ends.
  suspended_at BIGINT NOT NULL DEFAULT 0, -- 0: it is not
  UNIQUE (account, name)
);
CREATE UNIQUE INDEX domain_holder ON domain (name) WHERE owned;
CREATE INDEX domain_account ON domain (account, id);
CREATE INDEX domain_name ON domain (name);
CREATE INDEX domain_check ON domain (next_check_at);
-- Each node looks every few seconds which are suspended.
CREATE INDEX domain_suspended ON domain (id) WHERE suspended_at > 0;

-- owner: domain
CREATE TABLE dkim_key (
  id         {id},
  domain     BIGINT NOT NULL REFERENCES domain (id) ON DELETE CASCADE,
  selector   {text} NOT NULL,
  algorithm  {text} NOT NULL CHECK (algorithm IN ('rsa', 'ed25519')),
  private_key    {blob} NOT NULL,          -- sealed
  record     TEXT NOT NULL,            -- the TXT value to publish
  seen       BOOLEAN NOT NULL,         -- in DNS, at the last check that got an answer
  created_at BIGINT NOT NULL,
  -- A DKIM key is published before it is used, and stays published for a while
  -- after another has taken its place.
  state TEXT NOT NULL DEFAULT 'active', -- pending, active, retiring, retired
  imported BOOLEAN NOT NULL DEFAULT FALSE, -- the customer's own
  active_at BIGINT NOT NULL DEFAULT 0, -- when it was first seen in DNS; 0 for never
  until_at BIGINT NOT NULL DEFAULT 0, -- retiring: until when; retired: since when
  UNIQUE (domain, selector)
);
CREATE UNIQUE INDEX dkim_key_pending ON dkim_key (domain, algorithm) WHERE state = 'pending';
CREATE INDEX dkim_key_domain ON dkim_key (domain, id);

-- owner: mailbox
-- reads: migration, spam
CREATE TABLE mailbox (
  id           {id},
  account      BIGINT NOT NULL REFERENCES account (id),
  domain       BIGINT NOT NULL REFERENCES domain (id),
  local_part   TEXT NOT NULL,          -- as given
  address      {text} NOT NULL,          -- folded, for look-ups (address.Key)
  display_name TEXT NOT NULL,
  password     TEXT NOT NULL,          -- argon2id
  generation   BIGINT NOT NULL,        -- rises when cached log-ins must be forgotten
  quota        BIGINT NOT NULL,        -- bytes
  status       TEXT NOT NULL CHECK (status IN ('active', 'suspended')),
  created_at   BIGINT NOT NULL,
  deleted_at   BIGINT NOT NULL,         -- 0 while it lives; restorable for 30 days
  -- Where the mail of a mailbox goes as well, one address to a line, and whether
  -- it is kept here then; and whether its vacation may answer now.
  forward_to TEXT NOT NULL DEFAULT '',
  keep_copy BOOLEAN NOT NULL DEFAULT TRUE,
  auto_reply BOOLEAN NOT NULL DEFAULT FALSE,
  -- How much a spam filter may say about mail to a mailbox: off, lenient, normal
  -- or strict.
  spam_filter TEXT NOT NULL DEFAULT 'normal',
  -- What SCRAM-SHA-256 proves a password by (RFC 5803 §2), several separated by
  -- blanks; '' for none, as everywhere while the operator does not offer it.
  scram TEXT NOT NULL DEFAULT '',
  -- The mailbox's password that it was made of: an older release changes that alone,
  -- and then it counts for nothing.
  scram_of TEXT NOT NULL DEFAULT '',
  -- How much of it is in mailbox_storage. A release that doesn't know the column leaves
  -- it behind: the difference is added to each reading, and counted within an hour.
  counted_quota BIGINT NOT NULL DEFAULT 0,
  -- The display name with which it is in mailbox_piece; NULL for none yet. Those in which
  -- it is another, as an older release leaves them, are searched one by one.
  indexed_name TEXT
);
CREATE UNIQUE INDEX mailbox_live ON mailbox (domain, address) WHERE deleted_at = 0;
CREATE INDEX mailbox_address ON mailbox (address);
CREATE INDEX mailbox_deleted ON mailbox (deleted_at) WHERE deleted_at > 0;
CREATE INDEX mailbox_scram ON mailbox (id) WHERE scram <> '';
CREATE INDEX mailbox_uncounted ON mailbox (account, id)
  WHERE counted_quota <> CASE WHEN deleted_at = 0 THEN quota ELSE 0 END;
CREATE INDEX mailbox_unindexed ON mailbox (account, id) WHERE indexed_name IS DISTINCT FROM display_name;
-- For lists of the live and of the deleted, of an account and of a domain.
CREATE INDEX mailbox_account_live ON mailbox (account, deleted_at, id);
CREATE INDEX mailbox_domain_live ON mailbox (domain, deleted_at, id);
CREATE INDEX mailbox_account_deleted ON mailbox (account, id) WHERE deleted_at > 0;
CREATE INDEX mailbox_domain_deleted ON mailbox (domain, id) WHERE deleted_at > 0;

-- owner: mailbox
-- reads: folder
CREATE TABLE mailbox_usage (
  mailbox    {id},
  bytes      BIGINT NOT NULL,
  messages   BIGINT NOT NULL,
  over_since BIGINT NOT NULL,           -- when RCPT was first refused for lack of room; 0 for none
  -- Whether its owner knows that a mailbox is nearly full: 0 it is not, 1 it is
  -- and has to be told, 2 it was told.
  nearly_full BIGINT NOT NULL DEFAULT 0,
  -- A message counts for at least 1,024 bytes (mailbox.MinCharge). surcharge is what
  -- small messages count for beyond their sizes; bytes stays the sum of sizes.
  surcharge BIGINT NOT NULL DEFAULT 0
) {hot};
CREATE INDEX mailbox_usage_nearly_full ON mailbox_usage (mailbox) WHERE nearly_full = 1;

-- owner: folder
CREATE TABLE folder (
  id          {id},
  mailbox     BIGINT NOT NULL REFERENCES mailbox (id),
  name        {text} NOT NULL,           -- UTF-8, '/' between levels
  special_use     {text} NOT NULL,           -- its special use (RFC 6154) such as '\Sent', or ''
  uidvalidity BIGINT NOT NULL,
  uid_next    BIGINT NOT NULL,
  modseq      BIGINT NOT NULL,
  changed_modseq     BIGINT NOT NULL,         -- the modseq of the last change that is no arrival
  messages    BIGINT NOT NULL,
  unseen      BIGINT NOT NULL,
  bytes       BIGINT NOT NULL,
  recent_uid  BIGINT NOT NULL,         -- messages from here on no session has seen yet
  log_start_modseq   BIGINT NOT NULL,         -- changes up to this modseq are no longer in the log
  surcharge BIGINT NOT NULL DEFAULT 0,
  -- 2 * uid_next - messages grows by one with each arrival and each removal.
  -- surcharge_mark grows by the same wherever surcharge is kept up. While the two
  -- differ, as they do in every folder before its first recount and after changes by
  -- a release that knows no surcharge, folder.Recount counts the folder again.
  surcharge_mark BIGINT NOT NULL DEFAULT 0,
  UNIQUE (mailbox, name)
) {hot};
CREATE UNIQUE INDEX folder_special ON folder (mailbox, special_use) WHERE special_use <> '';

-- Folders that were deleted, until their messages are gone too and no folder
-- made meanwhile can have got the same UIDVALIDITY.
-- owner: folder
CREATE TABLE deleted_folder (
  folder      {id},
  mailbox     BIGINT NOT NULL,
  uidvalidity BIGINT NOT NULL
);
CREATE INDEX deleted_folder_mailbox ON deleted_folder (mailbox);

-- owner: folder
CREATE TABLE subscription (
  mailbox BIGINT NOT NULL REFERENCES mailbox (id),
  name    {text} NOT NULL,
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
  structure  {blob} NOT NULL,           -- the index of its parts (message.Index)
  -- What is appended by a client is in no thread.
  account BIGINT NOT NULL DEFAULT 0,
  domain BIGINT NOT NULL DEFAULT 0,
  thread_id {text} NOT NULL DEFAULT '',
  reference BIGINT NOT NULL DEFAULT 0, -- hash of its Message-ID; never 0 in a thread
  arrival_id BIGINT NOT NULL DEFAULT 0, -- the same for all copies of one message
  -- How an arriving message was judged, such as "spf=pass dkim=fail"; what is not
  -- named is none.
  check_results TEXT NOT NULL DEFAULT '',
  -- What a message answers, for IMAP's THREAD=REFERENCES. Of messages that were
  -- stored before it is read, and put here, when a client first asks for it.
  reply_references {blob} NOT NULL DEFAULT '', -- hashes of Message-IDs, the nearest last; empty: not known yet
  -- Mail of the service to one of the people may hold a link that lets in whoever
  -- has it. Only the protocols of the mailbox that it is in give its text.
  private BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX message_thread ON message (account, thread_id, id) WHERE thread_id <> '';
CREATE INDEX message_reference ON message (account, reference, arrival_id, id) WHERE reference <> 0;
-- For listing what a mailbox holds, newest first, whatever the folders.
CREATE INDEX message_mailbox ON message (mailbox, id);
-- What arrived for an account, newest first, whatever the mailbox.
CREATE INDEX message_account ON message (account, id) WHERE account <> 0;

-- owner: folder
-- reads: spam
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
-- PostgreSQL finds messages by a list of UIDs either one by one or by reading the
-- whole folder, which is quicker where folders hold a dozen. What it learns of the
-- average folder, or learnt before a large one was filled, made it read a million
-- rows for sixteen. Knowing nothing of folders, and that UIDs differ, it goes by
-- the size of the table. To give a column its own type forgets what was learnt.
{postgres}ALTER TABLE folder_message ALTER COLUMN folder SET STATISTICS 0;
{postgres}ALTER TABLE folder_message ALTER COLUMN uid SET (n_distinct = -1);

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
CREATE TABLE expunged_message (
  message BIGINT NOT NULL PRIMARY KEY,
  at      BIGINT NOT NULL
) {clustered};
CREATE INDEX expunged_message_at ON expunged_message (at);

-- Which deliveries the local courier has filed: should their outcome be lost,
-- they are not filed again. Pruned after some days.
-- owner: inbound
CREATE TABLE filed_delivery (
  message BIGINT NOT NULL,             -- the outbound_message
  n       BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX filed_delivery_at ON filed_delivery (at);

-- The bytes of one message: those in the row, then those of the file. Small
-- messages have no file. Rows of several recipients may share one.
-- owner: blob
-- reads: folder, db
CREATE TABLE blob (
  id    {id},
  size  BIGINT NOT NULL,               -- of both together
  file  BIGINT NOT NULL,               -- names the file in the blob store; 0 for none
  bytes {blob} NOT NULL
);
CREATE INDEX blob_file ON blob (file) WHERE file > 0;
-- Messages of up to 8 KB stay in their row instead of being cut into chunks,
-- and are not compressed: that cost more than everything else in storing one.
{postgres} ALTER TABLE blob SET (toast_tuple_target = 8160);
{postgres} ALTER TABLE blob ALTER COLUMN bytes SET STORAGE EXTERNAL;

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
  thread_id   {text} NOT NULL,
  metadata    TEXT NOT NULL,           -- JSON object
  utf8        BOOLEAN NOT NULL,        -- needs SMTPUTF8
  eight_bit   BOOLEAN NOT NULL,        -- the body holds bytes above 127
  size        BIGINT NOT NULL,
  blob        BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  created_at  BIGINT NOT NULL,
  -- Which template an API mail was made of; 0 for none.
  template BIGINT NOT NULL DEFAULT 0,
  template_version BIGINT NOT NULL DEFAULT 0,
  -- Threads: which messages of an account answer each other. A message that
  -- arrives, or that is submitted, is found by the hash of its Message-ID; mail of
  -- the API by its id, which is in its Message-ID.
  reference BIGINT NOT NULL DEFAULT 0, -- hash of a Message-ID that is not made of the id; else 0
  ret TEXT NOT NULL DEFAULT '', -- RET: HDRS, FULL
  envid TEXT NOT NULL DEFAULT '', -- ENVID, decoded
  -- What a submission says about TLS (RFC 8689): 'required' by the REQUIRETLS
  -- parameter of MAIL, 'optional' by the field "TLS-Required: No", else ''.
  require_tls TEXT NOT NULL DEFAULT '',
  -- The alias by which a message came that goes on to an address elsewhere; 0 for
  -- what was sent from here.
  forwarded BIGINT NOT NULL DEFAULT 0,
  private BOOLEAN NOT NULL DEFAULT FALSE
);
CREATE INDEX outbound_message_account ON outbound_message (account, id);
CREATE INDEX outbound_message_thread ON outbound_message (account, thread_id, id) WHERE thread_id <> '';
CREATE INDEX outbound_message_reference ON outbound_message (account, reference, id) WHERE reference <> 0;

-- owner: queue
-- reads: inbound
CREATE TABLE delivery (
  message     BIGINT NOT NULL,
  n           BIGINT NOT NULL,         -- 0…, in the order of recipients
  account     BIGINT NOT NULL,
  recipient   TEXT NOT NULL,
  kind        TEXT NOT NULL,           -- to, cc, bcc; envelope (submission)
  destination {text} NOT NULL,           -- the recipient's domain, A-labels
  state       {text} NOT NULL,
  due_at      BIGINT NOT NULL,
  expires_at  BIGINT NOT NULL,
  lease      BIGINT,                  -- which node has it in hand
  attempts    BIGINT NOT NULL,
  sequence    BIGINT NOT NULL,         -- of its events
  code        BIGINT NOT NULL,         -- the last reply
  enhanced    TEXT NOT NULL,
  reply       TEXT NOT NULL,
  remote_host      TEXT NOT NULL,           -- the host that gave it, 'local' or 'sandbox'
  updated_at  BIGINT NOT NULL,
  offers_unsubscribe BOOLEAN NOT NULL DEFAULT FALSE, -- to unsubscribe
  -- What the sender of a submission asked to be told of a recipient (RFC 3461),
  -- and when it is told that the mail is not there yet.
  notify BIGINT NOT NULL DEFAULT 0, -- NOTIFY as given, and 16 times what we tell of it
  orcpt TEXT NOT NULL DEFAULT '', -- ORCPT as "rfc822;a@b", decoded
  delay_report_at BIGINT NOT NULL DEFAULT 0, -- the sender is told then that it is late; 0: not, or told
  -- A held delivery is in the hand of nobody: its tenure is 0, so that no index
  -- of what waits has it. One that a node had in hand is marked, and its tenure
  -- becomes 0 when the node lets go.
  hold BIGINT NOT NULL DEFAULT 0, -- the queue_hold it is held for; 1: for itself; 0: not
  held_at BIGINT NOT NULL DEFAULT 0, -- since when, while it is held
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX delivery_due ON delivery (due_at) WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_lease ON delivery (lease, message, n) WHERE lease IS NOT NULL;
-- Few deliveries are in these states, so the ordinary way pays nothing for it.
CREATE INDEX delivery_unusual ON delivery (account, state, message)
  WHERE state IN ('scheduled', 'deferred', 'bounced', 'complained', 'suppressed', 'failed', 'cancelled');
CREATE INDEX delivery_late ON delivery (delay_report_at) WHERE lease IS NULL AND delay_report_at > 0 AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_marked ON delivery (lease, message, n) WHERE lease > 0 AND hold > 0;
CREATE INDEX delivery_destination ON delivery (destination, due_at, message, n) WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_account ON delivery (account, message, n) WHERE lease IS NULL AND state IN ('scheduled', 'queued', 'deferred');
CREATE INDEX delivery_held ON delivery (destination, message, n) WHERE lease = 0;
CREATE INDEX delivery_held_account ON delivery (account, message, n) WHERE lease = 0;
CREATE INDEX delivery_hold ON delivery (hold, message, n) WHERE lease = 0;

-- owner: queue
CREATE TABLE attempt (
  message    BIGINT NOT NULL,
  n          BIGINT NOT NULL,
  attempt    BIGINT NOT NULL,          -- 1…
  started_at BIGINT NOT NULL,
  duration_us     BIGINT NOT NULL,          -- how long it took
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
-- reads: webhook, stat
CREATE TABLE event (
  id         {id},
  position   BIGINT,
  account    BIGINT NOT NULL,
  kind       {text} NOT NULL,
  message    BIGINT NOT NULL,          -- the outbound_message it is about; 0 for none
  data       TEXT NOT NULL,            -- JSON
  created_at BIGINT NOT NULL,
  -- What an event is about, for lists, webhooks and figures.
  domain BIGINT NOT NULL DEFAULT 0, -- of the sender, the mailbox, or itself; 0 for none
  mailbox BIGINT NOT NULL DEFAULT 0, -- 0 for none
  recipient {text} NOT NULL DEFAULT '', -- as suppressions are keyed; '' for none
  status TEXT NOT NULL DEFAULT '', -- data.status; '' for none
  -- What an inbound_email event says of the text of its message is read when the
  -- event is first read itself, and is kept then: this is the message until then,
  -- 0 afterwards and for every other event.
  content BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX event_position ON event (position) WHERE position IS NOT NULL;
CREATE INDEX event_account ON event (account, position) WHERE position IS NOT NULL;
CREATE INDEX event_new ON event (id) WHERE position IS NULL;
CREATE INDEX event_message ON event (message) WHERE message > 0;
CREATE INDEX event_recipient ON event (account, recipient, position) WHERE recipient <> '' AND position IS NOT NULL;
CREATE INDEX event_kind ON event (account, kind, position) WHERE position IS NOT NULL;
-- The events of a domain and of a mailbox, by kind: each list reads an index that leads
-- with its filter. Both gain a row when an event gets its position, not before.
CREATE INDEX event_domain ON event (domain, kind, position) WHERE domain > 0 AND position IS NOT NULL;
CREATE INDEX event_mailbox ON event (mailbox, kind, position) WHERE mailbox > 0 AND position IS NOT NULL;

-- The answers to requests that carried an Idempotency-Key, for a day.
-- owner: idempotency
CREATE TABLE idempotency (
  account    BIGINT NOT NULL,
  path       {text} NOT NULL,            -- of the operation, such as /outbound/send
  key        {text} NOT NULL,            -- as the client gave it
  sum        {blob} NOT NULL,          -- SHA-256 of the request's body
  response     {blob} NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (account, path, key)
) {clustered};
CREATE INDEX idempotency_expires ON idempotency (expires_at);

-- owner: template
CREATE TABLE template (
  id         {id},
  account    BIGINT NOT NULL REFERENCES account (id),
  name       TEXT NOT NULL,
  alias      {text} NOT NULL,            -- '' for none
  latest     BIGINT NOT NULL,          -- the number of the newest version
  published  BIGINT NOT NULL,          -- that of the version which is sent
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- What the versions of a template take, in bytes: an account has a limit of that.
  bytes BIGINT NOT NULL DEFAULT 0
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
  bytes BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (template, version)
) {clustered};

-- Addresses that an account's API mail does not go to. An entry of scope 'all'
-- stops every send, one of scope 'unsubscribable' those that offer to
-- unsubscribe; an address may have one of each, and the first reason is kept.
-- owner: suppression
CREATE TABLE suppression (
  id         {id},
  account    BIGINT NOT NULL,
  address    {text} NOT NULL,            -- folded, for look-ups (address.Key)
  scope      {text} NOT NULL CHECK (scope IN ('all', 'unsubscribable')),
  reason     {text} NOT NULL CHECK (reason IN ('bounce', 'complaint', 'unsubscribe', 'manual')),
  message    BIGINT NOT NULL,          -- the outbound_message that led to it; 0 for none
  n          BIGINT NOT NULL,
  diagnostic TEXT NOT NULL,
  simulated  BOOLEAN NOT NULL,         -- of a simulator address: shown, and stops nothing
  created_at BIGINT NOT NULL,
  UNIQUE (account, address, scope)
);
CREATE INDEX suppression_account ON suppression (account, id);
CREATE INDEX suppression_reason ON suppression (account, reason, id);

-- Complaints that the simulator still has to make.
-- owner: relay
CREATE TABLE simulated_complaint (
  message BIGINT NOT NULL,
  n       BIGINT NOT NULL,
  due_at  BIGINT NOT NULL,
  until   BIGINT NOT NULL,             -- given up after this
  PRIMARY KEY (message, n)
) {clustered};
CREATE INDEX simulated_complaint_due ON simulated_complaint (due_at);

-- By what sent messages are found: hashes of their recipients, words and so on.
-- Filled in the background, and could be made anew at any time.
-- owner: outbound
CREATE TABLE outbound_term (
  account BIGINT NOT NULL,
  term    BIGINT NOT NULL,
  message BIGINT NOT NULL,
  PRIMARY KEY (account, term, message)
) {clustered};

-- How far each pass over the messages has come: the first finds their terms,
-- the later ones those that were committed after the first had passed.
-- owner: outbound
CREATE TABLE outbound_index_progress (
  pass BIGINT NOT NULL PRIMARY KEY,
  position BIGINT NOT NULL                 -- the last message that it has seen
) {clustered};
INSERT INTO outbound_index_progress (pass, position) VALUES (0, 0), (1, 0), (2, 0);

-- What is still to be told to the sender of a submission: written in the
-- commit of what happened, deleted in the commit that files the report.
-- owner: queue
CREATE TABLE notice (
  id         {id},
  message    BIGINT NOT NULL,
  n          BIGINT NOT NULL,
  action     TEXT NOT NULL CHECK (action IN ('failed', 'delayed', 'delivered', 'relayed')),
  recipient  TEXT NOT NULL,
  orcpt      TEXT NOT NULL,
  code       BIGINT NOT NULL,          -- what the host said
  enhanced   TEXT NOT NULL,
  reply      TEXT NOT NULL,
  remote_host     TEXT NOT NULL,
  next_at    BIGINT NOT NULL,          -- of delayed: the next try
  expires_at BIGINT NOT NULL,          -- and the last
  at         BIGINT NOT NULL,          -- when it happened
  due_at     BIGINT NOT NULL,          -- when to file the report; later than at after a failure to
  UNIQUE (message, n, id)
);
CREATE INDEX notice_due ON notice (due_at);

-- The MTA-STS policies of other domains (RFC 8461), kept so that a restart
-- forgets none.
-- owner: route
CREATE TABLE sts_policy (
  domain     {text} NOT NULL PRIMARY KEY,  -- A-labels, lower case
  id         TEXT NOT NULL,              -- as in its TXT record
  policy     TEXT NOT NULL,              -- as it was fetched
  fetched_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  refresh_at BIGINT NOT NULL,            -- when it is fetched again, or dropped
  used_at    BIGINT NOT NULL             -- when mail last went by it, give or take a day
);
CREATE INDEX sts_policy_refresh ON sts_policy (refresh_at);

-- What an operator holds back, also of mail that is still to come. Deliveries
-- that are held for it carry its id.
-- owner: queue
CREATE TABLE queue_hold (
  id         {id},
  kind       {text} NOT NULL CHECK (kind IN ('destination', 'account')),
  target     {text} NOT NULL,            -- the destination, or the account's id
  reason     TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  UNIQUE (kind, target)
);

-- Destinations that an operator wants tried now: nodes that have put them off
-- begin again. Rows live an hour.
-- owner: queue
CREATE TABLE retry_request (
  destination {text} NOT NULL PRIMARY KEY,
  at          BIGINT NOT NULL
) {clustered};
CREATE INDEX retry_request_at ON retry_request (at);

-- Where the events of an account are sent to. One that was deleted is shown to
-- nobody, and stays until its deliveries are gone.
-- owner: webhook
CREATE TABLE webhook (
  id          {id},
  account     BIGINT NOT NULL REFERENCES account (id),
  url         TEXT NOT NULL,
  description TEXT NOT NULL,
  kinds       TEXT NOT NULL,           -- ' bounce complaint ', or ' all '
  domains     TEXT NOT NULL,           -- ids ' 1 2 ' that events must be about; '' with '' below for any
  mailboxes   TEXT NOT NULL,           -- the same
  status      TEXT NOT NULL CHECK (status IN ('enabled', 'disabled', 'deleted')),
  reason      TEXT NOT NULL,           -- why it is disabled: manual, gone, failing; '' while it is not
  status_at   BIGINT NOT NULL,
  secrets     {blob} NOT NULL,         -- sealed JSON: the secret, and older ones that still sign
  old_until   BIGINT NOT NULL,         -- until when the last of these signs; 0 for none
  revision    BIGINT NOT NULL,         -- rises with every change
  created_at  BIGINT NOT NULL,
  updated_at  BIGINT NOT NULL,
  -- Whether deliveries of inbound_email events hold the content of the message: what
  -- its header and its text say. Only who may read mail turns that on.
  content BOOLEAN NOT NULL DEFAULT TRUE
);
CREATE INDEX webhook_account ON webhook (account, id) WHERE status IN ('enabled', 'disabled');
CREATE INDEX webhook_enabled ON webhook (account) WHERE status = 'enabled';
CREATE INDEX webhook_deleted ON webhook (id) WHERE status = 'deleted';

-- What is on its way to one webhook: one node at a time works there.
-- owner: webhook
CREATE TABLE webhook_dispatch (
  webhook       {id},
  lease        BIGINT,                -- which node works here
  due_at        BIGINT,                -- when a node shall come, while none does; NULL: nothing waits
  arrivals      BIGINT NOT NULL,       -- rises with every batch of deliveries: a node leaves only if it has seen all
  generation          BIGINT NOT NULL,       -- rises when what is below begins anew
  failing_since BIGINT NOT NULL,       -- the first failure since the last success; 0 for none
  level         BIGINT NOT NULL,       -- how often in a row a single try after a rest failed
  paused_until    BIGINT NOT NULL        -- no attempt before this
) {hot};
CREATE INDEX webhook_dispatch_due ON webhook_dispatch (due_at) WHERE lease IS NULL AND due_at IS NOT NULL;
CREATE INDEX webhook_dispatch_lease ON webhook_dispatch (lease, webhook) WHERE lease IS NOT NULL;

-- One event on its way to one webhook. The id is the event's.
-- owner: webhook
CREATE TABLE webhook_delivery (
  webhook    BIGINT NOT NULL,
  id         BIGINT NOT NULL,
  kind       TEXT NOT NULL,
  state      {text} NOT NULL,
  attempts   BIGINT NOT NULL,
  tries      BIGINT NOT NULL,          -- the place in the schedule: attempts since it was last begun anew
  due_at     BIGINT NOT NULL,
  code       BIGINT NOT NULL,          -- HTTP status of the last attempt; 0 for none
  error    TEXT NOT NULL,            -- of the last attempt; '' for none
  body       TEXT NOT NULL,            -- of a test; an event's body is made of its row
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- The same for one delivery, so that turning it on leaves the bodies of earlier
  -- deliveries as they are. NULL: a node of an earlier release made the delivery.
  content BOOLEAN,
  PRIMARY KEY (webhook, id)
) {clustered} {hot};
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook, due_at, id) WHERE state = 'pending';
CREATE INDEX webhook_delivery_state ON webhook_delivery (webhook, state, id);

-- owner: webhook
CREATE TABLE webhook_attempt (
  webhook    BIGINT NOT NULL,
  id         BIGINT NOT NULL,
  n          BIGINT NOT NULL,          -- 1…
  started_at BIGINT NOT NULL,
  duration_us     BIGINT NOT NULL,          -- how long it took
  headers    TEXT NOT NULL,            -- JSON: what was sent
  code       BIGINT NOT NULL,          -- HTTP status; 0 for no answer
  error    TEXT NOT NULL,            -- '' for none
  error_text      TEXT NOT NULL,            -- the trouble, for people
  response   TEXT NOT NULL,            -- the beginning of the answer's body
  next_at    BIGINT NOT NULL,          -- when it is tried again; 0 for never
  PRIMARY KEY (webhook, id, n)
) {clustered};

-- Up to which event deliveries were made.
-- owner: webhook
CREATE TABLE webhook_position (
  id       {id},                       -- 1
  position BIGINT NOT NULL
) {hot};
INSERT INTO webhook_position (id, position) VALUES (1, 0);

-- What an operator allows an account instead of what all may: -1 is as all, 0
-- is no limit.
-- owner: quota
CREATE TABLE quota_account (
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
CREATE TABLE quota_window (
  account   BIGINT NOT NULL,
  key       BIGINT NOT NULL,           -- the api_key whose own limit it is; 0: the account's
  name      {text} NOT NULL,             -- of the limit, such as sends_per_hour
  starts_at BIGINT NOT NULL,
  used     BIGINT NOT NULL,           -- by all nodes, less what they gave back
  block     BIGINT NOT NULL,           -- the size of the last block
  warned    BIGINT NOT NULL,           -- the draw that was told as rate_limit_warning; 0: none yet
  PRIMARY KEY (account, key, name, starts_at)
) {clustered};

-- What is kept of a sent message when its copy is deleted: by what an answer
-- finds its thread, and a late report its recipient.
-- owner: outbound
CREATE TABLE outbound_trace (
  id         {id},                     -- of the message
  account    BIGINT NOT NULL,
  domain     BIGINT NOT NULL,
  reference  BIGINT NOT NULL,          -- hash of its Message-ID
  thread_id  {text} NOT NULL,
  message_id TEXT NOT NULL,
  recipients {blob} NOT NULL           -- of API mail: 8 bytes for each delivery, in their order, by which an address can be recognised
);
CREATE INDEX outbound_trace_reference ON outbound_trace (account, reference, id);
CREATE INDEX outbound_trace_thread ON outbound_trace (account, thread_id, id) WHERE thread_id <> '';

-- How often something happened in an hour (kept for some months) or a day of
-- UTC. The rows of domain 0 count all domains of an account.
-- owner: stat
CREATE TABLE stat (
  account      BIGINT NOT NULL,
  domain       BIGINT NOT NULL,
  span         BIGINT NOT NULL,        -- how long the period is, in microseconds: an hour or a day
  period       BIGINT NOT NULL,        -- when it begins
  delivered    BIGINT NOT NULL,
  deferred     BIGINT NOT NULL,
  bounced      BIGINT NOT NULL,
  complained   BIGINT NOT NULL,
  suppressed   BIGINT NOT NULL,
  failed       BIGINT NOT NULL,
  cancelled    BIGINT NOT NULL,
  unsubscribed BIGINT NOT NULL,
  inbound      BIGINT NOT NULL,
  PRIMARY KEY (account, domain, span, period)
) {clustered};
CREATE INDEX stat_period ON stat (span, period);

-- The same of what was accepted, which another duty counts.
-- owner: stat
CREATE TABLE stat_accepted (
  account    BIGINT NOT NULL,
  domain     BIGINT NOT NULL,
  span       BIGINT NOT NULL,
  period     BIGINT NOT NULL,
  messages   BIGINT NOT NULL,
  recipients BIGINT NOT NULL,
  PRIMARY KEY (account, domain, span, period)
) {clustered};
CREATE INDEX stat_accepted_period ON stat_accepted (span, period);

-- Up to which position events are counted; one row.
-- owner: stat
CREATE TABLE stat_position (
  id       {id},
  position BIGINT NOT NULL
);
INSERT INTO stat_position (id, position) VALUES (1, 0);

-- What the sandbox kept back of what was sent to the outside.
-- owner: relay
CREATE TABLE captured_message (
  id         {id},
  account    BIGINT NOT NULL,
  domain     TEXT NOT NULL,            -- of its From, A-labels
  message    BIGINT NOT NULL,          -- the outbound_message
  sender     TEXT NOT NULL,            -- MAIL FROM; '' is the null sender
  recipients TEXT NOT NULL,            -- JSON list of addresses
  blob       BIGINT NOT NULL,
  size       BIGINT NOT NULL,
  structure  {blob} NOT NULL           -- the index of its parts (message.Index)
);
CREATE INDEX captured_message_account ON captured_message (account, id);

-- People who sign in to the dashboard. A person may belong to several accounts.
-- owner: user
CREATE TABLE dashboard_user (
  id         {id},
  email      {text} NOT NULL UNIQUE,     -- as address.Key
  name       TEXT NOT NULL,
  password   TEXT NOT NULL,            -- PHC string
  totp       {blob},                   -- sealed; NULL: no second factor
  totp_step  BIGINT NOT NULL DEFAULT 0, -- of the last code taken, none of which counts twice
  created_at BIGINT NOT NULL,
  -- An address belongs to whoever has proven it: by a link that came by mail.
  address TEXT NOT NULL DEFAULT '', -- as it was given, to write to; '': as email has it
  verified_at BIGINT NOT NULL DEFAULT 0 -- when the address was proven; 0: not yet
);

-- owner: user
CREATE TABLE dashboard_member (
  account    BIGINT NOT NULL,
  person     BIGINT NOT NULL REFERENCES dashboard_user (id),
  role       TEXT NOT NULL CHECK (role IN ('owner', 'member', 'reader')),
  created_at BIGINT NOT NULL,
  -- Whether a member may read mail in the dashboard. Owners always may, members unless an
  -- owner takes it away, readers if an owner allows it.
  reads_mail BOOLEAN NOT NULL DEFAULT FALSE,
  PRIMARY KEY (account, person)
) {clustered};
CREATE INDEX dashboard_member_person ON dashboard_member (person, account);

-- owner: user
CREATE TABLE dashboard_session (
  id         {id},
  hash       {blob} NOT NULL UNIQUE,   -- of the token in the cookie
  person     BIGINT NOT NULL REFERENCES dashboard_user (id),
  account    BIGINT NOT NULL,          -- the one that is looked at
  halfway    BIGINT NOT NULL,          -- 1 while the second factor is still asked for
  address    TEXT NOT NULL,            -- of the client, at sign-in
  agent      TEXT NOT NULL,            -- User-Agent, at sign-in
  created_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  -- Wrong codes of the second factor in a session; at the limit the session ends.
  tries BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX dashboard_session_person ON dashboard_session (person, id);
CREATE INDEX dashboard_session_expires ON dashboard_session (expires_at);

-- Links that work once: to set the service up, to join an account, to choose a
-- new password.
-- owner: user
CREATE TABLE dashboard_ticket (
  id         {id},
  hash       {blob} NOT NULL UNIQUE,   -- of the token in the link
  kind       TEXT NOT NULL CHECK (kind IN ('setup', 'invite', 'reset')),
  account    BIGINT NOT NULL,          -- to join; 0 for none
  person     BIGINT NOT NULL,          -- whose password; 0 for none
  email      TEXT NOT NULL,            -- who is invited; '' for whoever has the link
  role       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  address TEXT NOT NULL DEFAULT '', -- as it was given
  proves BIGINT NOT NULL DEFAULT 0, -- 1: nobody but the holder of the address has seen the link
  confirms BIGINT NOT NULL DEFAULT 0, -- 1: a reset that sets no password, but confirms the address
  inviter BIGINT NOT NULL DEFAULT 0, -- who invites; 0: an operator at the command line
  inviter_of BIGINT NOT NULL DEFAULT 0 -- the account in which the inviter may do so
);
CREATE INDEX dashboard_ticket_account ON dashboard_ticket (account, id);
CREATE INDEX dashboard_ticket_expires ON dashboard_ticket (expires_at);
CREATE INDEX dashboard_ticket_inviter ON dashboard_ticket (inviter, inviter_of);

-- Codes to sign in without the second factor, each once.
-- owner: user
CREATE TABLE dashboard_recovery_code (
  person BIGINT NOT NULL REFERENCES dashboard_user (id),
  hash   {blob} NOT NULL,
  PRIMARY KEY (person, hash)
) {clustered};

-- Who did what.
-- owner: audit
CREATE TABLE dashboard_audit (
  id         {id},
  account    BIGINT NOT NULL,
  person     BIGINT NOT NULL,
  actor_email        TEXT NOT NULL,            -- the e-mail address at that time
  summary       TEXT NOT NULL,            -- a sentence
  address    TEXT NOT NULL,            -- of the client
  created_at BIGINT NOT NULL,
  -- An entry of the audit log is written before the change and completed after it, so
  -- that no change lacks an entry. dashboard_audit.person is the id of the user, API key or
  -- mailbox that did it, by actor.
  actor TEXT NOT NULL DEFAULT 'user', -- user, api_key, mailbox, operator, nobody
  action {text} NOT NULL DEFAULT '', -- stable name: an operation of the API, or a route
  object_id TEXT NOT NULL DEFAULT '', -- id of what was changed or read; '' for none
  state TEXT NOT NULL DEFAULT 'done' -- begun, done, failed
);
CREATE INDEX dashboard_audit_account ON dashboard_audit (account, id);
CREATE INDEX dashboard_audit_created ON dashboard_audit (created_at);
CREATE INDEX dashboard_audit_action ON dashboard_audit (account, action, id);

-- An alias is an address without a password, whose mail goes to others. An
-- address of a domain belongs to a mailbox that lives or to an alias, never to
-- both: whoever adds one holds the account (account.Hold).
-- owner: mailbox
CREATE TABLE alias (
  id         {id},
  account    BIGINT NOT NULL REFERENCES account (id),
  domain     BIGINT NOT NULL REFERENCES domain (id),
  local_part TEXT NOT NULL,            -- as given; '*' takes what nothing else does
  address    {text} NOT NULL,            -- folded, for look-ups (address.Key)
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL
);
CREATE INDEX alias_account ON alias (account, id);
-- For the list of a domain's aliases: with one that begins with the domain, too,
-- PostgreSQL would sort all of them.
CREATE INDEX alias_domain ON alias (domain, id);
CREATE UNIQUE INDEX alias_address ON alias (address, domain);

-- owner: mailbox
CREATE TABLE alias_target (
  alias   BIGINT NOT NULL,
  n       BIGINT NOT NULL,             -- 0…, in the order in which they were given
  mailbox BIGINT NOT NULL,             -- of the same account; 0 for an address elsewhere
  address TEXT NOT NULL,               -- elsewhere; '' for a mailbox
  PRIMARY KEY (alias, n)
) {clustered};
CREATE INDEX alias_target_mailbox ON alias_target (mailbox) WHERE mailbox > 0;

-- Passwords of single applications, beside the mailbox's own. They are random,
-- so a plain hash finds them.
-- owner: mailbox
CREATE TABLE app_password (
  id           {id},
  mailbox      BIGINT NOT NULL,
  name         TEXT NOT NULL,
  protocols    TEXT NOT NULL,          -- imap, smtp; separated by blanks
  hash         {blob} NOT NULL UNIQUE,
  created_at   BIGINT NOT NULL,
  last_used_at BIGINT NOT NULL,         -- give or take an hour; 0 for never
  scram TEXT NOT NULL DEFAULT ''
);
CREATE INDEX app_password_mailbox ON app_password (mailbox, id);
CREATE INDEX app_password_scram ON app_password (id) WHERE scram <> '';

-- Who signed in to a mailbox, or tried to. What repeats within an hour is one
-- row; only the newest are kept.
-- owner: mailbox
CREATE TABLE sign_in (
  id           {id},
  mailbox      BIGINT NOT NULL,
  protocol     TEXT NOT NULL,
  address      TEXT NOT NULL,          -- of the client
  result       TEXT NOT NULL,
  failed       BIGINT NOT NULL,        -- 0 for a result of ok, else 1
  app_password TEXT NOT NULL,          -- its name; '' for the mailbox's own
  times        BIGINT NOT NULL,
  first_at     BIGINT NOT NULL,
  last_at      BIGINT NOT NULL
);
CREATE INDEX sign_in_mailbox ON sign_in (mailbox, id);
CREATE INDEX sign_in_newest ON sign_in (mailbox, failed, id);
CREATE INDEX sign_in_last ON sign_in (last_at);

-- What a mailbox answers while its owner is away (RFC 3834).
-- owner: mailbox
CREATE TABLE vacation (
  mailbox    {id},
  enabled    BOOLEAN NOT NULL,
  starts_at  BIGINT NOT NULL,          -- 0: at once
  ends_at    BIGINT NOT NULL,          -- 0: never
  subject    TEXT NOT NULL,            -- '': that of the message, with a word before it
  body       TEXT NOT NULL,
  days       BIGINT NOT NULL,          -- after how many a sender is answered again
  round      BIGINT NOT NULL,          -- another one when all are to be answered anew
  updated_at BIGINT NOT NULL
);

-- Who was answered, and when last.
-- owner: mailbox
CREATE TABLE vacation_reply (
  mailbox BIGINT NOT NULL,
  sender  {text} NOT NULL,               -- folded (address.Key)
  round   BIGINT NOT NULL,
  at      BIGINT NOT NULL,
  PRIMARY KEY (mailbox, sender)
) {clustered};
CREATE INDEX vacation_reply_at ON vacation_reply (at);

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
  selected_folders        TEXT NOT NULL,         -- JSON list of folders; '' for all
  source        BIGINT NOT NULL,       -- hash of host and user name: one at a time
  state         TEXT NOT NULL CHECK (state IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
  error       TEXT NOT NULL,         -- why it failed, or waits; '' for none
  lease        BIGINT,                -- which node has it in hand
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
CREATE INDEX migration_due ON migration (due_at) WHERE lease IS NULL AND due_at IS NOT NULL;
CREATE INDEX migration_lease ON migration (lease, id) WHERE lease IS NOT NULL;
CREATE INDEX migration_busy ON migration (account) WHERE lease IS NOT NULL;
CREATE INDEX migration_open ON migration (account, id) WHERE state IN ('queued', 'running');
CREATE UNIQUE INDEX migration_source ON migration (source) WHERE lease IS NOT NULL;

-- A folder of the source, and how far it is.
-- owner: migration
CREATE TABLE migration_folder (
  migration   BIGINT NOT NULL,
  n           BIGINT NOT NULL,
  name        TEXT NOT NULL,           -- there
  target      TEXT NOT NULL,           -- here
  state       TEXT NOT NULL CHECK (state IN ('waiting', 'done', 'failed')),
  error     TEXT NOT NULL,           -- why it failed; '' for none
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
  error       TEXT NOT NULL,
  PRIMARY KEY (migration, n)
) {clustered};

-- How many messages that an account taught the spam filter hold a word.
-- owner: spam
CREATE TABLE spam_token (
  account BIGINT NOT NULL,
  token   BIGINT NOT NULL,             -- 64 bits of a hash
  spam    BIGINT NOT NULL,             -- below 0 it is 0: the word was forgotten before
  ham     BIGINT NOT NULL,
  day     BIGINT NOT NULL,             -- of the last one, from 1970 on
  PRIMARY KEY (account, token)
) {clustered};

-- How many messages that was in all.
-- owner: spam
CREATE TABLE spam_training_total (
  account {id},
  spam    BIGINT NOT NULL,
  ham     BIGINT NOT NULL
);

-- What was taught, so that no message counts twice.
-- owner: spam
CREATE TABLE spam_trained_message (
  account BIGINT NOT NULL,
  mark    BIGINT NOT NULL,             -- 64 bits of a hash of the message
  spam    BOOLEAN NOT NULL,
  day     BIGINT NOT NULL,
  PRIMARY KEY (account, mark)
) {clustered};

-- What is yet to be learned: messages that a person put somewhere. They are
-- found where they are now, whose they are with their mailbox.
-- owner: spam
CREATE TABLE spam_training_task (
  message {id},
  account BIGINT NOT NULL,
  spam    BOOLEAN NOT NULL
);

-- Which secret key the sealed values of this database were sealed with: one
-- row, for all nodes.
-- owner: db
CREATE TABLE service_key (
  id          {id},           -- 1
  fingerprint TEXT NOT NULL
);

-- A link that gives a phone the profile of a mailbox, with an app password that
-- is made when it is followed: once.
-- owner: mailbox
CREATE TABLE profile_link (
  id         {id},
  mailbox    BIGINT NOT NULL,
  generation BIGINT NOT NULL,          -- of the mailbox's log-ins: a new password ends it
  name       TEXT NOT NULL,            -- of the device
  hash       {blob} NOT NULL UNIQUE,   -- of the token
  expires_at BIGINT NOT NULL,
  used_at   BIGINT NOT NULL           -- 0: not yet
);
CREATE INDEX profile_link_mailbox ON profile_link (mailbox, id);
CREATE INDEX profile_link_expires ON profile_link (expires_at);

-- What a node knew of a large folder when it wrote that down, so that the next
-- one to open it need not read all its messages. Derived: where it is missing or
-- too old, the messages are read.
-- owner: folder
CREATE TABLE folder_view (
  folder  {id},
  version BIGINT NOT NULL,             -- rises with every writing
  format  BIGINT NOT NULL,             -- of the parts
  changed_modseq BIGINT NOT NULL,             -- folder.changed then
  next_uid    BIGINT NOT NULL,             -- messages from this UID on are not in it
  keyword_sets   TEXT NOT NULL                -- the sets of keywords that the parts number, a line each
);

-- Its messages, by ranges of UIDs.
-- owner: folder
CREATE TABLE folder_view_part (
  folder BIGINT NOT NULL,
  part   BIGINT NOT NULL,              -- UID >> 14
  data   {blob} NOT NULL,
  PRIMARY KEY (folder, part)
);

-- What came later of a delivery and did not change its state: a report that
-- another host still tries, an automatic reply. It stands in the timeline.
-- owner: queue
CREATE TABLE remark (
  message  BIGINT NOT NULL,
  n        BIGINT NOT NULL,
  mark     {text} NOT NULL,              -- of the report, so that one which comes twice is told once
  at       BIGINT NOT NULL,
  outcome  TEXT NOT NULL,              -- deferred, delivered
  stage    TEXT NOT NULL,              -- delay, auto-reply
  code     BIGINT NOT NULL,
  enhanced TEXT NOT NULL,
  reply    TEXT NOT NULL,
  remote_host   TEXT NOT NULL,
  PRIMARY KEY (message, n, mark)
) {clustered};

-- Connections that are signed in to mailboxes now. Those of a tenure that has
-- ended are over, and count for nothing until they are deleted.
-- owner: mailbox
CREATE TABLE mailbox_session (
  id           {id},
  mailbox      BIGINT NOT NULL,
  lease       BIGINT NOT NULL,        -- of the node that has the connection
  protocol     TEXT NOT NULL,
  address      TEXT NOT NULL,          -- of the client
  app_password TEXT NOT NULL,          -- its name; '' for the mailbox's own
  program      TEXT NOT NULL,          -- what the client calls itself; '' for nothing
  since        BIGINT NOT NULL
);
CREATE INDEX mailbox_session_mailbox ON mailbox_session (mailbox, id);
CREATE INDEX mailbox_session_lease ON mailbox_session (lease, id);

-- Names the life of the PostgreSQL server: what is not logged is gone after a
-- crash, and not there on a standby that takes over, so that the row is another
-- one then. One row; SQLite has no use for it.
-- owner: db
CREATE TABLE server_incarnation (
  id   {id},          -- 1
  name TEXT NOT NULL
);
{postgres}ALTER TABLE server_incarnation SET UNLOGGED;

-- Tells this database from others that are used with the same secret key: a
-- copy, or one begun anew. One row, for all nodes.
-- owner: db
CREATE TABLE database_name (
  id   {id},          -- 1
  name TEXT NOT NULL
);

-- Failed logins, counted over all nodes: by credential (network ''), by network
-- (credential ''), and by credential and network where the credential has
-- signed in from that network. A row says when its failures are forgotten; each
-- failure moves that time on.
-- owner: ratelimit
CREATE TABLE login_failure (
  credential {text} NOT NULL,          -- "mailbox:ID", "apps:ID", "user:ID", …
  network    {text} NOT NULL,          -- the client's: /32, /64 or /48
  clear_at   BIGINT NOT NULL,
  PRIMARY KEY (credential, network)
) {clustered};
CREATE INDEX login_failure_clear ON login_failure (clear_at);

-- The networks that a credential has signed in from lately. There, only its own
-- failures count against it.
-- owner: ratelimit
CREATE TABLE login_network (
  credential {text} NOT NULL,
  network    {text} NOT NULL,
  seen_at    BIGINT NOT NULL,
  PRIMARY KEY (credential, network)
) {clustered};
CREATE INDEX login_network_seen ON login_network (seen_at);

-- How much mail of the service was sent to an address, or at somebody's wish, in
-- a window of time.
-- owner: user
CREATE TABLE service_mail (
  key       {text} NOT NULL,           -- the kind of mail, and to whom or by whom
  ends_at   BIGINT NOT NULL,           -- of the window
  sent      BIGINT NOT NULL,
  PRIMARY KEY (key, ends_at)
) {clustered};
CREATE INDEX service_mail_ends ON service_mail (ends_at);

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

-- Who sent what an account forwarded, where his address is too long for a return path of
-- its own. It is kept for as long as a report may come back.
-- owner: inbound
CREATE TABLE forward_path (
  id      {id},
  account BIGINT NOT NULL,
  sender  TEXT NOT NULL,
  at      BIGINT NOT NULL
);
CREATE INDEX forward_path_at ON forward_path (at);

-- What the quotas of an account's live mailboxes are together, as far as they are
-- counted: the sum of mailbox.counted. It changes in the transaction that changes
-- that, by whoever holds the account (account.Hold).
-- owner: mailbox
CREATE TABLE mailbox_storage (
  account  {id},
  allotted BIGINT NOT NULL             -- bytes
);

-- All that follows some letter of a mailbox's address and display name, in lower case,
-- cut to 12 letters: who searches for a part of them finds it by how it begins.
-- owner: mailbox
CREATE TABLE mailbox_piece (
  account BIGINT NOT NULL,
  piece   {text} NOT NULL,
  mailbox BIGINT NOT NULL,
  PRIMARY KEY (account, piece, mailbox)
) {clustered};

-- The DKIM key of the service's own name: it signs reports and the mail of the
-- service itself. It is generated once and shared by all nodes.
-- owner: domain
CREATE TABLE host_key (
  algorithm  {text} PRIMARY KEY CHECK (algorithm IN ('rsa')),
  selector   TEXT NOT NULL,
  private_key    {blob} NOT NULL, -- sealed
  record     TEXT NOT NULL,   -- the TXT value to publish
  created_at BIGINT NOT NULL
);
